"""Commands that need a server: `shardcall serve`, `worker`, `certificates`; the client loads them by entry points."""
