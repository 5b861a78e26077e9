"""How an RPC is made: deadlines, cancellation, repetition and what an error means."""
