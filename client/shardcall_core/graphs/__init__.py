"""Graphs of kernel calls, shared with the server."""
