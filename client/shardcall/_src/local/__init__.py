"""Settings and the log of a server that `shardcall.local` starts."""
