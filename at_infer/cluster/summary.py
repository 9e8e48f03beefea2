"""Summary of a cluster run."""

from collections import Counter
from dataclasses import dataclass

from at_infer.cluster.inputs import ShortSpans
from at_infer.cluster.manifest import Manifest
from at_infer.cluster.schedule import SplitSchedule
from at_infer.cluster.scoring import SplitResult
from at_infer.cluster.worker import Workers
from at_infer.scoring.score_file import Summary
from at_infer.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class ClusterSummary(Summary):
    """Summary of a cluster run; times are summed over the workers."""

    workers: int
    lost_workers: int
    splits: int
    skipped_splits: int
    """Done by an earlier run."""
    split_rows: int


@dataclass(slots=True)
class RunCounts:
    """What a run counts while it goes on."""

    resumed_rows: int = 0
    """Scored by an earlier run."""
    skipped_splits: int = 0
    lost_workers: int = 0


def sum_up(
    manifest: Manifest,
    schedule: SplitSchedule,
    short: ShortSpans,
    scorer: Scorer,
    workers: Workers,
    counts: RunCounts,
    *,
    seconds: float,
) -> ClusterSummary:
    """Add up the results of all splits, those of earlier runs too."""
    entries, found, resumed_rows = manifest.done, schedule.found, counts.resumed_rows
    results = [SplitResult(**entry.result) for entry in entries if entry.result is not None]
    engines = Counter(worker.engine for worker in workers.opened)
    missing: Counter[str] = Counter()
    for result in results:
        missing.update(result.missing_features)
    rows = sum(series.rows for series in found.series)
    return ClusterSummary(
        output=str(manifest.folder),
        engine=", ".join(f"{count} x {engine}" for engine, count in engines.most_common()),
        rows=rows,
        input_rows=rows,
        interval_s=None,
        series=len(found.series) - found.gaps + found.empty_series,
        windows=sum(result.windows for result in results),
        anomalies=sum(result.anomalies for result in results),
        segments=sum(result.segments for result in results) - schedule.segments_that_go_on(entries),
        unscored_rows=sum(result.unscored_rows for result in results),
        bad_windows=sum(result.bad_windows for result in results),
        short_series=short.series,
        gaps=found.gaps,
        short_stretches=short.stretches,
        dropped_rows=0,
        missing_features={name: missing[name] for name in scorer.metadata.columns if name in missing},
        threshold=scorer.threshold,
        score_mode=scorer.config.mode,
        batch_size=max((result.batch_size for result in results), default=0),
        resumed_rows=resumed_rows,
        seconds=seconds,
        rows_per_s=(rows - resumed_rows) / seconds,
        read_s=sum(result.read_s for result in results),
        engine_s=sum(result.engine_s for result in results),
        write_s=sum(result.write_s for result in results),
        workers=workers.count,
        lost_workers=counts.lost_workers,
        splits=len(entries),
        skipped_splits=counts.skipped_splits,
        split_rows=schedule.split_rows,
    )
