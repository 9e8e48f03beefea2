"""Benchmarks: run them as `python -m benchmarks.NAME`."""
