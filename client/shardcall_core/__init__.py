"""The wire, tables of functions, graphs, types and access that client and server share; no JAX."""
