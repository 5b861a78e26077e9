"""The hosts that join the mesh, as the front end sees them."""
