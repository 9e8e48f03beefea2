"""Values that options accept and models do not record: written once, for commands and library; imports nothing."""

from typing import Literal

BadTime = Literal["error", "drop", "ignore"]
"""A time that does not rise is an error, its row is left out, or it counts like any other."""
ShortSeries = Literal["error", "skip", "pad"]
BadRows = Literal["error", "null"]
MissingFeature = Literal["error", "mask"]
Explain = Literal["none", "top", "all"]
Join = Literal["auto", "row", "time", "series+time"]
ThresholdMethod = Literal["ratio", "fixed", "gap", "gap-log", "spot", "incidents"]
ProtocolName = Literal["paper", "published-leaking"]
RowFormat = Literal["auto", "json", "csv"]
WatchOutput = Literal["rows", "incidents"]
"""A line per row, or per incident event."""
NoticeFormat = Literal["json", "slack", "alertmanager"]
