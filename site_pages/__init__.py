"""The pages of the documentation site that are generated from the source, and its navigation."""
