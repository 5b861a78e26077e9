"""Memory: regions of calls, segments of clients, arrays that stay on the mesh."""
