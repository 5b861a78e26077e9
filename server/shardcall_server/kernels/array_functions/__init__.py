"""Functions that move, take, sort and create elements, decompose matrices or transform axes: rows of one table."""
