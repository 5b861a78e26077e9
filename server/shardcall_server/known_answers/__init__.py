"""Known-answer tests: small programs whose results are known, run to find what the compiler gets wrong."""
