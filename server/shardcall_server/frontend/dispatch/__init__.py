"""The path of a call to the mesh: operands, the queue, execution and results."""
