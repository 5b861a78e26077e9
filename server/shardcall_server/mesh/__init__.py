"""The mesh worker: the process that owns the devices."""
