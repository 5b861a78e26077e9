"""What a file may hold that was to be a JSON object."""

NO_JSON_OBJECTS = (b"", b"{", b"[]", b"7", b"null", b"\x00\xff", b"\xff\xfe", b"[" * 100_000)
