"""Types of arrays, meshes, specs and parameters, arguments of calls, and the errors."""
