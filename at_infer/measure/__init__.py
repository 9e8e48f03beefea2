"""Benchmarks, diagnosis of a machine, inspection of files, drift."""
