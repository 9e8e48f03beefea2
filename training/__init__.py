"""Learn an Anomaly Transformer from a Parquet file (PyTorch)."""
