"""Metrics, log lines and spans."""
