"""The mesh worker as the front end sees it: its process, its end and its answers."""
