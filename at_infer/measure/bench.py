"""Latency and throughput of engines side by side, in trtexec's vocabulary."""

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import NDArray

from at_infer.engines import Engine, Provider, open_engine
from at_infer.errors import AtInferError, ConfigError
from at_infer.measure.gpu_sensors import GpuFacts, GpuWatch
from at_infer.models.kinds import is_plan
from at_infer.models.metadata import Metadata
from at_infer.scoring.real_windows import real_windows
from at_infer.threads import cpu_count
from at_infer.thresholds.verdict import exceeds

if TYPE_CHECKING:
    from at_infer.engines.tensorrt.plan import PlanEngine

Floats = NDArray[np.float32]

STEADY = 0.025  # a coefficient of variation above this makes a figure doubtful, as in trtexec
FEWEST_RUNS = 10


@dataclass(frozen=True, slots=True)
class Contestant:
    """Someone who scores windows."""

    name: str
    runs_on: str
    """Runtime, version and device."""
    run: Callable[[Floats], Floats | None]
    """Windows (B,N,F) -> scores (B,N); None from those that leave their answers on the GPU."""
    memory_mb: float
    """Resident memory that opening it and a first run added."""
    answers: bool = True
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """Someone who was asked for but could not run here."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Figures:
    """One contestant at one batch size; times are of a whole batch, from host memory to host memory if nothing else is
    said in the name."""

    name: str
    batch: int
    runs: int
    min_ms: float
    mean_ms: float
    median_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    variation: float
    """Coefficient of variation: standard deviation by mean."""
    windows_per_s: float
    """By the median."""
    points_per_s: float

    @property
    def steady(self) -> bool:
        """Can the figures be relied on?"""
        return self.variation <= STEADY


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a contestant's scores are from the first one's."""

    name: str
    max_abs: float
    verdicts_changed: float


@dataclass(frozen=True, slots=True)
class BenchProcess:
    """What holds for all contestants: they share a process, and maybe a GPU."""

    threads: int
    peak_mb: float | None
    gpu: GpuFacts | None
    gpu_unknown: str | None

    @classmethod
    def now(cls, threads: int | None, watch: GpuWatch | None) -> Self:
        """After the measurement, whose sensors are in `watch` if a GPU took part."""
        peak = peak_mb()
        return cls(
            threads=threads or cpu_count(),
            peak_mb=None if math.isnan(peak) else round(peak, 1),
            gpu=None if watch is None else watch.facts,
            gpu_unknown=None if watch is None else watch.reason,
        )


def open_contestants(
    paths: Sequence[Path], *, provider: Provider, threads: int | None
) -> tuple[list[Contestant], list[Absent], Metadata | None]:
    """Every engine that runs here; and why the others do not."""
    found: list[Contestant] = []
    absent: list[Absent] = []
    first: Metadata | None = None
    alike = {name for name, count in Counter(path.name for path in paths).items() if count > 1}
    for path in paths:
        title = str(path) if path.name in alike else path.name
        try:
            opened = list(_open(path, provider, threads))
        except AtInferError as error:
            absent.append(Absent(title, str(error)))
            continue
        for engine, metadata, remark, memory_mb in opened:
            first = first or metadata
            if (metadata.model.window, metadata.columns) != (first.model.window, first.columns):
                raise ConfigError(f"{path}: takes other windows than {paths[0]}; compare engines of one model")
            found += _contestants(engine, f"{title} {metadata.precision}{remark}", memory_mb)
    return found, absent, first


def _open(path: Path, provider: Provider, threads: int | None) -> Iterator[tuple[Engine, Metadata, str, float]]:
    """Engine, metadata, a remark and the memory it took, after a first run; a plan with and without a CUDA graph."""
    openers: dict[str, Callable[[], Engine]] = {"": lambda: open_engine(path, provider=provider, threads=threads)}
    if is_plan(path):
        from at_infer.engines.tensorrt.plan import PlanEngine

        openers[", no CUDA graph"] = lambda: PlanEngine(path, cuda_graph=False)
    for remark, opener in openers.items():
        before = resident_mb()
        engine = opener()
        if engine.metadata is None:
            raise ConfigError(f"{path}: lacks {'; '.join(engine.missing)}")
        model = engine.metadata.model
        engine.score(np.zeros((1, model.window, model.features), np.float32))
        yield engine, engine.metadata, remark, resident_mb() - before


def _contestants(engine: Engine, name: str, memory_mb: float) -> Iterator[Contestant]:
    """The engine as it scores; a plan also without transfers, on windows that already lie on the GPU."""
    on_gpu = is_plan(engine.path)
    yield Contestant(name, engine.describe(), engine.score, memory_mb, on_gpu=on_gpu)
    if on_gpu:
        plan = cast("PlanEngine", engine)

        def compute(windows: Floats) -> None:
            plan.compute(len(windows))

        yield Contestant(f"{name}, no transfers", engine.describe(), compute, 0.0, answers=False, on_gpu=True)


def try_scorers(
    scorers: Iterable[tuple[str, Callable[[Floats], Floats]]], probe: Floats, *, runs_on: str, before_mb: float
) -> tuple[list[Contestant], list[Absent]]:
    """Functions that score the windows `probe`, as contestants; and why the others do not.

    `before_mb` is the resident memory before their runtime was loaded, which counts for the first.
    """
    found: list[Contestant] = []
    absent: list[Absent] = []
    for name, score in scorers:
        try:
            score(probe)
        except Exception as error:  # torch.compile needs a compiler and fails in many ways
            absent.append(Absent(name, " ".join(str(error).split())[:200]))
            continue
        found.append(Contestant(name, runs_on, score, resident_mb() - before_mb))
        before_mb = resident_mb()
    return found, absent


def random_windows(count: int, metadata: Metadata) -> Floats:
    """Windows (B,N,F) of noise with mean and scale of the training data, the same ones at every call."""
    shape = (count, metadata.model.window, metadata.model.features)
    mean, scale = (np.asarray(part, np.float32) for part in (metadata.scaler.mean, metadata.scaler.scale))
    windows: Floats = mean + scale * np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return windows


def measure(
    contestants: Sequence[Contestant],
    windows: Floats,
    batches: Sequence[int],
    *,
    seconds: float,
    observe: Callable[[int], None] = lambda _batch: None,
) -> list[Figures]:
    """Time every contestant at every batch size; they take turns, so that a busy machine is busy for all.

    `windows` holds as many as the largest batch. Each contestant gets about `seconds` per batch size, warm-up apart.
    `observe` hears of every batch size before it is measured.
    """
    found = []
    for batch in batches:
        observe(batch)
        part = np.ascontiguousarray(windows[:batch])
        times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
        for contestant in contestants:  # those without transfers come after the one that leaves windows on the GPU
            for _ in range(3):
                contestant.run(part)
        deadline = time.perf_counter() + seconds * len(contestants)
        while time.perf_counter() < deadline or min(map(len, times.values())) < FEWEST_RUNS:
            for contestant in contestants:
                begin = time.perf_counter()
                contestant.run(part)
                times[contestant.name].append(time.perf_counter() - begin)
        found += [figures(name, batch, windows.shape[1], taken) for name, taken in times.items()]
    return found


def figures(name: str, batch: int, window: int, seconds: Sequence[float]) -> Figures:
    """Summarise the times of the runs."""
    ms = np.asarray(seconds) * 1e3
    median = float(np.median(ms))
    p90, p95, p99 = (float(np.percentile(ms, q)) for q in (90, 95, 99))
    return Figures(
        name=name,
        batch=batch,
        runs=len(ms),
        min_ms=float(ms.min()),
        mean_ms=float(ms.mean()),
        median_ms=median,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=float(ms.max()),
        variation=float(ms.std() / ms.mean()),
        windows_per_s=batch / median * 1e3,
        points_per_s=batch * window / median * 1e3,
    )


def compare(contestants: Sequence[Contestant], windows: Floats, threshold: float, batch: int) -> list[Agreement]:
    """Scores of all contestants that answer, on the same windows, against those of the first."""

    def scores(contestant: Contestant) -> Floats:
        parts = np.array_split(windows, max(1, math.ceil(len(windows) / batch)))
        answers = [contestant.run(np.ascontiguousarray(part)) for part in parts]
        return np.concatenate([answer for answer in answers if answer is not None])

    expected = scores(contestants[0])
    found = []
    for contestant in contestants:
        if not contestant.answers:
            continue
        answer = scores(contestant)
        changed = float((exceeds(answer, threshold) != exceeds(expected, threshold)).mean())
        found.append(Agreement(contestant.name, float(np.abs(answer - expected).max()), changed))
    return found


def compare_on(contestants: Sequence[Contestant], source: str, metadata: Metadata, batch: int) -> list[Agreement]:
    """`compare` on the windows of a file, by the threshold of the model."""
    threshold = metadata.validation_of().threshold.value
    return compare(contestants, real_windows(source, metadata), threshold, batch)


def peak_mb() -> float:
    """Largest resident memory of this process so far; NaN where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return math.nan
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1e3 if found else math.nan


def resident_mb() -> float:
    """Resident memory of this process; NaN where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
