"""Generated stubs of the public contract, `protos/shardcall/v1`; never edited."""
