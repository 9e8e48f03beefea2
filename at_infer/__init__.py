"""Score Parquet files with an exported Anomaly Transformer: numpy, polars and an engine, no torch."""

__version__ = "0.1.0"
