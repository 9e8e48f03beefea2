"""The Python API: tables in memory in, the same tables with scores out."""
