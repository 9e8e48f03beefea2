"""One stream of rows in, one score per row out."""
