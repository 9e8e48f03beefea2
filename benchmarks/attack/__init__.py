"""Attacks on the real commands: mutated files, hostile metadata and names, kills, failing writes, bombs, streams.

    nice -n 15 python -m benchmarks.attack --mutations 20000 --kills 1000 --output attack.json

A case ends in one line (exit code 1), is accepted (exit code 0, and the output is what it must be), or is a finding:
traceback, hang, crash by a signal, or wrong output.
"""
