"""How the arrays of a call go to the server and come back."""
