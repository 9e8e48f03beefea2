"""The schedule of a run on many workers: which splits there are, what each of them reads, which are done already."""

from collections.abc import Iterable, Sequence

from at_infer.cluster.inputs import FoundSeries
from at_infer.cluster.manifest import SplitEntry, split_file
from at_infer.cluster.scoring import SplitTask
from at_infer.cluster.splits import Split, cut, pack
from at_infer.models.kinds import json_sha256
from at_infer.scoring.settings import RowSettings
from at_infer.tables.columns import FileRows, Place


class SplitSchedule:
    """An input divided into splits, which are identified by the names of their files (their first row)."""

    def __init__(
        self,
        places: Sequence[Place],
        found: FoundSeries,
        settings: RowSettings,
        split_rows: int,
    ) -> None:
        self.places, self.found, self.split_rows = places, found, split_rows
        self.looks_back = settings.filling == "forward"
        """A gap at the start of a piece is filled from the rows before it, however far away."""
        self.pieces = [piece for series in found.series for piece in cut(series, settings, split_rows)]
        self.splits: dict[str, Split] = {}

    def keep(self, entries: Iterable[SplitEntry]) -> dict[str, SplitEntry]:
        """Finished splits that still belong to the input; the others are no part of the schedule."""
        at = {split_file(*self.found.offsets.locate(piece.first)): number for number, piece in enumerate(self.pieces)}
        kept = {}
        for entry in entries:
            number = at.get(entry.file, len(self.pieces))
            pieces = tuple(self.pieces[number : number + entry.pieces])
            if len(pieces) == entry.pieces > 0 and self._key(Split(pieces)) == entry.key:
                self.splits[entry.file], kept[entry.file] = Split(pieces), entry
        return kept

    def add_rest(self) -> list[SplitEntry]:
        """Splits of everything that is not done."""
        done = {piece for split in self.splits.values() for piece in split.pieces}
        return [self._add(split) for split in pack((p for p in self.pieces if p not in done), self.split_rows)]

    def halve(self, entry: SplitEntry) -> list[SplitEntry]:
        """Put two splits, with half of the series each, in the place of one; none if there is only one series."""
        halves = self.splits[entry.file].halves()
        if halves is None:
            return []
        del self.splits[entry.file]
        return [self._add(half) for half in halves]

    def task(self, entry: SplitEntry, share: int) -> SplitTask:
        """Settings of a worker."""
        split = self.splits[entry.file]
        head, tail = split.pieces[0], split.pieces[-1]
        return SplitTask(
            name=entry.file,
            key=entry.key,
            split=split,
            rows=self._file_rows(head.read_first, tail.read_end),
            earlier=self._file_rows(head.series.first, head.read_first) if self.looks_back else (),
            share=share,
        )

    def files(self, entry: SplitEntry) -> range:
        """Numbers of the files that a split reads."""
        split = self.splits[entry.file]
        first, last = split.pieces[0].read_first, split.pieces[-1].read_end - 1
        return range(self.found.offsets.locate(first)[0], self.found.offsets.locate(last)[0] + 1)

    def segments_that_go_on(self, entries: Iterable[SplitEntry]) -> int:
        """Runs of anomalous rows that a cut in the middle of a series has made two of; `entries` in order."""
        twice, before, name = 0, False, None
        for entry in entries:
            assert entry.result is not None
            pieces = self.splits[entry.file].pieces
            twice += before and entry.result["begins_anomalous"] and pieces[0].series.name == name
            before, name = entry.result["ends_anomalous"], pieces[-1].series.name
        return twice

    def _add(self, split: Split) -> SplitEntry:
        head, tail = split.pieces[0], split.pieces[-1]
        place = self.found.offsets.locate(split.first)
        name = split_file(*place)
        self.splits[name] = split
        return SplitEntry(
            file=name,
            key=self._key(split),
            pieces=len(split.pieces),
            rows=split.rows,
            first=list(place),
            read_rows=[head.first - head.read_first, tail.read_end - tail.end],
        )

    def _key(self, split: Split) -> str:
        """Digest of what the scores depend on: the files that are read, and where windows lie on them."""
        head, tail = split.pieces[0], split.pieces[-1]
        locate, origin = self.found.offsets.locate, head.read_first
        first_file, first_row = locate(head.series.first if self.looks_back else origin)
        files = [
            [place.name, place.size, place.mtime_ns]
            for place in self.places[first_file : locate(tail.read_end - 1)[0] + 1]
        ]
        geometry = [
            [piece.first - origin, piece.end - origin, piece.read_end - origin, piece.read_end == piece.series.end]
            for piece in split.pieces
        ]
        whole = [files, first_row, origin - head.series.first, geometry]
        return json_sha256(whole)

    def _file_rows(self, first: int, end: int) -> tuple[FileRows, ...]:
        offsets = self.found.offsets
        return tuple(
            FileRows(self.places[file], int(offsets.offsets[file]), row, row_end)
            for file, row, row_end in offsets.between(first, end)
        )
