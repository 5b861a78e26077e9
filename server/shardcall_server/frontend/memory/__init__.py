"""Memory: regions of calls, segments shared with clients, resident arrays."""
