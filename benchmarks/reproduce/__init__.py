"""The tables of the Anomaly Transformer paper, reproduced: one command per table, with random baselines and unadjusted metrics."""
