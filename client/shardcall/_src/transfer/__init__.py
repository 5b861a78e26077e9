"""Uploads, downloads, shared memory and call streams."""
