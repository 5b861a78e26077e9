"""What is drawn for people: blocks of arrays, and the progress of calls."""
