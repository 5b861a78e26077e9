"""Preparation of calls and their results."""
