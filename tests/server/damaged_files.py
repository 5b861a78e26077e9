"""Contents of files that were to be JSON objects."""

NO_JSON_OBJECTS = (b"", b"{", b"[]", b"7", b"null", b"\x00\xff", b"\xff\xfe", b"[" * 100_000)
