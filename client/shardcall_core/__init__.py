"""What the client and the server share: the wire, tables of functions, graphs, types and access; no JAX."""
