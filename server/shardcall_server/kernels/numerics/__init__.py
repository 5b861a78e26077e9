"""Functions of blocks, without meshes: arithmetic of complex numbers, comparisons, orders, running sums."""
