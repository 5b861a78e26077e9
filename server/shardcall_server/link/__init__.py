"""The link between the front end and workers: frames, messages and blocks of arrays."""
