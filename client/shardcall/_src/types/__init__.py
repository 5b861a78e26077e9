"""Types of arrays, meshes, specs and parameters, the signatures of functions, and the errors."""
