"""Known-answer tests: small programs with known results, which detect miscompilations."""
