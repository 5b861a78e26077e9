"""Uploads, downloads and shared memory."""
