"""The tables of the Anomaly Transformer paper, made again: one command per table, beside chance and honest metrics."""
