"""The tables of the Anomaly Transformer paper, reproduced: one command per table, with baselines and plain metrics."""
