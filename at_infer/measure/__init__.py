"""How fast an engine is, what a machine has, and what a file is."""
