"""Live scoring: rows of many series, one at a time, each scored as the last of its window."""
