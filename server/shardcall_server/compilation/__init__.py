"""From a call to a compiled program: resolving, keys, lowering, what the program does."""
