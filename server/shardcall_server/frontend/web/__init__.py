"""The HTTP server of the front end: metrics, probes and the live page."""
