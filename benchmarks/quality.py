"""What each score mode is worth on labelled data: VUS-PR and AUC-PR per channel, beside PCA, moving average and chance.

    python -m benchmarks.quality --data DATA --work WORK --out benchmarks/results/quality.json

`--data` has a folder per data set with train.parquet and test.parquet, a `channel` column and, in the test part,
`label`. One small network is trained per channel, on nothing but its training part. What a channel came to is kept in
`--work`; a run that was stopped goes on from there, and several runs may share the work (`--part 0/2`, `--part 1/2`).
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from training.selection import AutoScore

from at_infer.config import DiscrepancyConfig, ModelConfig, ScoreConfig, TrainConfig
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import runs
from at_infer.evaluation.metrics.vus import THRESHOLDS, volumes
from at_infer.output import atomic_path
from at_infer.scoring.windows import window_starts
from training.checkpoint import Checkpoint
from training.data import DataConfig, load
from training.loop import fit
from training.validation import one_per_row, smoothed, window_parts, window_scores

Floats = NDArray[np.float32]

SMOOTHINGS = (1, 5, 10, 25, 50, 100)
MOVING_AVERAGES = (11, 51, 101)
PCA_VARIANCE = 0.9
FLOOR = 1e-4


class Group(NamedTuple):
    """Channels that are averaged together."""

    folder: str
    channels: tuple[str, ...] = ()
    """Empty: all."""
    columns: tuple[str, ...] = ()
    """Empty: all. Of MSL and SMAP only f00 is telemetry, the others are commands to the spacecraft."""


GROUPS = {
    "ASD": Group("asd"),
    "SMD a": Group("smd", tuple(f"machine-{m}" for m in ("1-2", "1-6", "2-1", "3-4"))),
    "SMD b": Group("smd", tuple(f"machine-{m}" for m in ("1-3", "2-4", "3-5", "3-10"))),
    "MSL": Group("msl", columns=("f00",)),
    "SMAP": Group("smap", columns=("f00",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the networks are made; all else is as `at-infer train` has it."""

    width: int = 64
    heads: int = 2
    layers: int = 1
    window: int = 100
    stride: int = 10
    steps: int = 400
    learning_rate: float = 1e-3
    seed: int = 0


class Channel(NamedTuple):
    """One series: rows to learn from, rows to judge, and the truth about these."""

    group: str
    name: str
    columns: list[str]
    """All features."""
    learnt: list[str]
    """Those that the network sees."""
    train: Floats
    test: Floats
    labels: NDArray[np.bool_]


def channels(data: Path, group: str) -> Iterator[Channel]:
    """The channels of a group that have rows of both kinds in their test part."""
    wanted = GROUPS[group]
    train, test = (pl.read_parquet(data / wanted.folder / f"{part}.parquet") for part in ("train", "test"))
    columns = [name for name in train.columns if name not in ("timestamp", "channel")]
    for name in wanted.channels or train["channel"].unique(maintain_order=True).to_list():
        of_train, of_test = (table.filter(pl.col("channel") == name) for table in (train, test))
        labels = of_test["label"].to_numpy().astype(np.bool_)
        if labels.any() and not labels.all():
            learn, judge = (table.select(columns).to_numpy().astype(np.float32) for table in (of_train, of_test))
            yield Channel(group, name, columns, list(wanted.columns or columns), learn, judge, labels)


def train(channel: Channel, setting: Setting) -> Checkpoint:
    """A network for one channel; the last fifth of its training part, or a window of it, is for validation."""
    model = ModelConfig(
        features=len(channel.learnt),
        window=setting.window,
        width=setting.width,
        heads=setting.heads,
        layers=setting.layers,
        feed_forward=setting.width,
    )
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        frame = pl.DataFrame(channel.train, schema=channel.columns).select(channel.learnt)
        frame.write_parquet(file.name)
        validation = max(0.2, 1.1 * setting.window / len(frame))
        data = load(DataConfig(source=file.name, validation=validation), window=setting.window, stride=setting.stride)
    config = TrainConfig(
        learning_rate=setting.learning_rate, max_steps=setting.steps, stride=setting.stride, seed=setting.seed
    )
    return fit(data, model, config, AutoScore())


def mode_scores(checkpoint: Checkpoint, rows: Floats) -> Iterator[tuple[ScoreConfig, Floats]]:
    """Every mode and smoothing, errors as they are and normalised, for raw rows of one series."""
    assert checkpoint.normal is not None
    mean, scale = (np.asarray(v, np.float32) for v in (checkpoint.scaler.mean, checkpoint.scaler.scale))
    starts = window_starts(len(rows), checkpoint.model.window, checkpoint.model.window, cover_tail=True)
    parts = window_parts(
        checkpoint.network(),
        torch.from_numpy((rows - mean) / scale),
        torch.from_numpy(starts),
        DiscrepancyConfig(),
        checkpoint.normal,
        64,
    )
    for score in replace(AutoScore(), smooth=1).candidates():
        of_windows = window_scores(parts, score, DiscrepancyConfig(), checkpoint.normal, checkpoint.model.layers)
        of_rows = one_per_row(of_windows, starts)
        for smooth in SMOOTHINGS:
            yield replace(score, smooth=smooth), smoothed(of_rows, [len(rows)], smooth)


def baseline_scores(channel: Channel, seed: int = 0) -> Iterator[tuple[str, Floats]]:
    """Scores that take no network: errors of features in multiples of their mean on the training part, smoothed."""
    train, test = _scaled(channel.train, channel.test)
    learnt = [channel.columns.index(name) for name in channel.learnt]
    found = {"random": np.random.default_rng(seed).random(len(test))}
    for width in MOVING_AVERAGES:
        usual, errors = (np.square(x - _moving_mean(x, width)) for x in (train[:, learnt], test[:, learnt]))
        found[f"moving average {width}"] = (errors / (usual.mean(axis=0) + FLOOR)).mean(axis=1)
    _, s, v = np.linalg.svd(train, full_matrices=False)
    share = np.cumsum(np.square(s)) / max(float(np.square(s).sum()), 1e-30)
    kept = v[: int(np.searchsorted(share, PCA_VARIANCE)) + 1]
    usual, errors = (np.square(x - x @ kept.T @ kept) for x in (train, test))
    found["PCA"] = (errors / (usual.mean(axis=0) + FLOOR)).mean(axis=1)
    for name, score in found.items():
        for smooth in (1,) if name == "random" else SMOOTHINGS:
            yield f"{name}|{smooth}", smoothed(score.astype(np.float32), [len(score)], smooth)


def _scaled(train: Floats, test: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean, std = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    std = np.where(np.ptp(train, axis=0) == 0, 1.0, std)
    return (train - mean) / std, (test - mean) / std


def _moving_mean(x: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Centred; at the ends, of the rows that exist."""
    row, reach = np.arange(len(x)), width // 2
    first, end = np.maximum(row - reach, 0), np.minimum(row + reach + 1, len(x))
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    mean: NDArray[np.float64] = (sums[end] - sums[first]) / (end - first)[:, None]
    return mean


def worth(scores: Floats, labels: NDArray[np.bool_]) -> dict[str, float]:
    """VUS-PR (buffer up to 100) and AUC-PR, as `at-infer evaluate` has them, in percent."""
    ranking = rank(scores, labels, THRESHOLDS)
    volume = volumes(scores, labels, runs(labels), ranking.samples)
    return {"vus_pr": 100 * volume.pr, "auc_pr": 100 * ranking.auc_pr}


def name_of(score: ScoreConfig) -> str:
    """Mode, normalisation and smoothing in one word."""
    return f"{score.mode}{' normalised' if score.normalise_errors else ''}|{score.smooth}"


def measure(channel: Channel, setting: Setting) -> dict[str, Any]:
    """Everything about one channel."""
    start = time.process_time()
    checkpoint = train(channel, setting)
    seconds = time.process_time() - start
    learnt = [channel.columns.index(name) for name in channel.learnt]
    found: dict[str, dict[str, Any]] = {
        name: worth(scores, channel.labels) for name, scores in baseline_scores(channel, setting.seed)
    }
    for score, scores in mode_scores(checkpoint, channel.test[:, learnt]):
        found[name_of(score)] = worth(scores, channel.labels)
    found["auto"] = found[name_of(checkpoint.score)] | {"chose": name_of(checkpoint.score)}
    return {"group": channel.group, "channel": channel.name, "cpu_s": round(seconds, 1), "worth": found}


def summarise(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the channels of each group, and over the groups."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    groups = [group for group in GROUPS if any(one["group"] == group for one in measured)]
    for metric in ("vus_pr", "auc_pr"):
        for group in groups:
            of_group = [one["worth"] for one in measured if one["group"] == group]
            for name in of_group[0]:
                mean = float(np.mean([one[name][metric] for one in of_group]))
                table.setdefault(name, {}).setdefault(metric, {})[group] = round(mean, 2)
        for figures in table.values():
            figures[metric]["mean"] = round(float(np.mean([figures[metric][group] for group in groups])), 2)
    return table


def print_table(table: dict[str, Any]) -> None:
    """VUS-PR, the best on average first."""
    groups = list(next(iter(table.values()))["vus_pr"])
    print(f"{'VUS-PR, %':32}" + "".join(f"{group:>9}" for group in groups))
    for name, figures in sorted(table.items(), key=lambda entry: -entry[1]["vus_pr"]["mean"]):
        print(f"{name:32}" + "".join(f"{figures['vus_pr'][group]:9.1f}" for group in groups))


def main() -> None:
    """Measure, and sum up what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where finished channels are kept")
    parser.add_argument("--out", type=Path, help="where the summary goes, if all channels are done")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--every", type=int, default=1, help="only each so-many-th channel")
    parser.add_argument("--part", default="0/1", help="i/n: only the channels whose turn it is")
    parser.add_argument("--most", type=int, help="stop after so many channels that were not done yet")
    parser.add_argument("--threads", type=int, default=1)
    for name, entry in Setting.__dataclass_fields__.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=entry.type, default=entry.default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    setting = Setting(**{name: getattr(args, name) for name in Setting.__dataclass_fields__})
    key = hashlib.sha256(json.dumps(asdict(setting)).encode()).hexdigest()[:12]
    args.work.mkdir(parents=True, exist_ok=True)
    turn, turns = (int(number) for number in args.part.split("/"))
    measured, left, fresh = [], 0, 0
    for group in args.groups.split(","):
        for i, channel in enumerate(channels(args.data, group)):
            if i % args.every:
                continue
            path = args.work / f"{key}-{group.replace(' ', '_')}-{channel.name}.json"
            if not path.exists() and i // args.every % turns == turn and fresh != args.most:
                fresh += 1
                with atomic_path(path) as temporary:
                    temporary.write_text(json.dumps(measure(channel, setting)))
                print(f"{group} {channel.name}", flush=True)
            if path.exists():
                measured.append(json.loads(path.read_text()))
            else:
                left += 1
    table = summarise(measured)
    print_table(table)
    print(f"{len(measured)} channels, {left} left to do")
    summary = {
        "benchmark": "quality",
        "setting": asdict(setting),
        "channels": {group: sum(one["group"] == group for one in measured) for group in GROUPS},
        "cpu_s": round(sum(one["cpu_s"] for one in measured)),
        "worth": table,
        "auto_chose": {f"{one['group']} {one['channel']}": one["worth"]["auto"]["chose"] for one in measured},
    }
    if args.out is not None and not left:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({name: summary[name] for name in ("benchmark", "setting", "channels")}))


if __name__ == "__main__":
    main()
