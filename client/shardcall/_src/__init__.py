"""Implementation of the client. Only names that `shardcall` exports are public."""
