"""Metadata are not believed: types, ranges and sizes are checked before anything is made of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import polars as pl
import pytest
import torch

from at_infer.models.metadata import LIVE_GRAPH, PREFIX
from tests.checkpoints import FEATURES, WINDOW, checkpoint
from tests.scored import rows, variant
from training.checkpoint import Checkpoint

NAN, INFINITE = float("nan"), float("inf")
DEEP: Any = "[" * 50_000
DIGITS: Any = "9" * 5_000


def threshold(value: Any) -> Any:
    def change(known: dict[str, Any]) -> None:
        for record in known["validation"]:
            record["threshold"]["value"] = value

    return change


def put(*path: Any, value: Any) -> Any:
    def change(known: dict[str, Any]) -> None:
        at: Any = known
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return change


HOSTILE: dict[str, Any] = {
    "threshold NaN": threshold(NAN),
    "threshold infinite": threshold(INFINITE),
    "threshold true": threshold(True),
    "threshold text": threshold("0.1"),
    "threshold null": threshold(None),
    "threshold of 300 digits": threshold(10**300),
    "columns repeated": put("columns", value=["f00"] * FEATURES),
    "columns missing": put("columns", value=["f00"]),
    "columns a text": put("columns", value="abc"),
    "columns half a surrogate pair": put("columns", 0, value="\ud800"),
    "window huge": put("model", "window", value=10**9),
    "window a float": put("model", "window", value=float(WINDOW)),
    "window true": put("model", "window", value=True),
    "window another": put("model", "window", value=WINDOW + 1),
    "features huge": put("model", "features", value=10**9),
    "layers huge": put("model", "layers", value=10**9),
    "heads zero": put("model", "heads", value=0),
    "model null": put("model", value=None),
    "quantiles null": put("validation", 0, "quantiles", value=None),
    "quantiles of a mode null": put("validation", 0, "quantiles", "fusion", value=None),
    "quantiles fall": lambda known: known["validation"][0]["quantiles"]["fusion"].reverse(),
    "levels fall": lambda known: known["quantile_levels"].reverse(),
    "levels too few": lambda known: known["quantile_levels"].pop(),
    "validation empty": put("validation", value=[]),
    "validation doubled": lambda known: known["validation"].extend(known["validation"]),
    "ratio of two": put("validation", 0, "threshold", "ratio", value=2.0),
    "scaler zero": put("scaler", "scale", 0, value=0),
    "scaler short": put("scaler", "mean", value=[0.0]),
    "scaler NaN": put("scaler", "mean", 0, value=NAN),
    "views short": put("normal", "views", "next", 0, value=[0.0]),
    "views without spread": put("normal", "views", "whole", "spread", value={}),
    "views of unit zero": put("normal", "views", "live", "unit", value=0.0),
    "layer absent": put("discrepancy", "layer", value=99),
    "fill unknown": put("fill", value="guess"),
    "season of others": put("season", value={"period_s": 86400.0, "offset_s": 0.0, "profile": [[1.0]]}),
    "season of no period": put("season", value={"period_s": 1e-320, "offset_s": NAN, "profile": [[1.0]] * FEATURES}),
    "time column a number": put("time_column", value=3),
    "batch null": put("batch", value=[None, 2, 3]),
    "format text": put("format", value="2"),
}
NOT_IN_CHECKPOINTS = {"window another", "batch null", "format text"}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.slow
def test_hostile_metadata_of_a_model_are_one_line(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any], name: str
) -> None:
    known = {
        entry.key.removeprefix(PREFIX): json.loads(entry.value)
        for entry in onnx.load(models / "model.onnx").metadata_props
        if entry.key not in ("at_infer.digest", LIVE_GRAPH)  # neither is JSON
    }
    before = json.dumps(known)
    HOSTILE[name](known)
    assert json.dumps(known) != before
    model, data = tmp_path / "model.onnx", tmp_path / "data.parquet"
    _write(models / "model.onnx", model, {entry: json.dumps(value) for entry, value in known.items()})
    rows(60).write_parquet(data)
    output = tmp_path / "scores.parquet"
    for words in (["score", data, "--engine", model, "-o", output], ["threshold", model], ["inspect", model]):
        answer = run_cli(*words)
        assert answer.code == 1, words
        assert answer.err.count("\n") <= 1
    assert not output.exists()


@pytest.mark.parametrize("text", [DEEP, DIGITS, "{", "\x00", "NaN", "-Infinity", ""])
@pytest.mark.slow
def test_a_property_that_is_no_json_is_one_line(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any], text: str
) -> None:
    model = tmp_path / "model.onnx"
    _write(models / "model.onnx", model, {"quantile_levels": text})
    for words in (["watch", "--engine", model], ["threshold", model], ["inspect", model]):
        answer = run_cli(*words)
        assert answer.code == 1, words
        assert answer.err.count("\n") <= 1


def test_a_property_that_is_not_utf8_is_one_line(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    model = tmp_path / "model.onnx"
    variant(models / "model.onnx", model, alignment="@@@@@@@@")
    model.write_bytes(model.read_bytes().replace(b"@@@@@@@@", b"\xff\xfe@@@@@@"))
    for words in (["watch", "--engine", model], ["threshold", model], ["inspect", model]):
        answer = run_cli(*words)
        assert answer.code == 1, words
        assert "not UTF-8" in answer.err + answer.out


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - NOT_IN_CHECKPOINTS))
@pytest.mark.slow
def test_hostile_values_in_a_checkpoint_are_one_line(
    tmp_path: Path, run_cli: Callable[..., Any], small: dict[str, Any], name: str
) -> None:
    content = json.loads(json.dumps({key: value for key, value in small.items() if key != "state_dict"}))
    HOSTILE[name](content)
    path = tmp_path / "ckpt.pt"
    torch.save(content | {"state_dict": small["state_dict"]}, path)
    answer = run_cli("inspect", path)
    assert answer.code == 1
    assert "is damaged or was edited" in answer.err
    assert answer.err.count("\n") == 1


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("small") / "ckpt.pt"
    checkpoint().save(path)
    assert Checkpoint.load(path).columns
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def test_a_damaged_zip_version_in_a_checkpoint_is_one_line(
    tmp_path: Path, run_cli: Callable[..., Any], small: dict[str, Any]
) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(small, path)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 6 : at + 8] = b"\xff\xff"
    path.write_bytes(content)
    answer = run_cli("inspect", path)
    assert answer.code == 1
    assert answer.err.count("\n") == 1


def test_a_flipped_bit_in_the_weights_of_a_checkpoint_is_found(
    tmp_path: Path, run_cli: Callable[..., Any], small: dict[str, Any]
) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(small, path)
    weights = max(small["state_dict"].values(), key=torch.Tensor.numel).numpy().tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(weights) + len(weights) // 2] ^= 1
    path.write_bytes(content)
    answer = run_cli("inspect", path)
    assert answer.code == 1
    assert "is not a checkpoint, or is damaged" in answer.err


PROPERTIES = ["score", "threshold", "validation", "layout", "delay", "columns", "options", "checkpoint_sha256"]
TEXTS = ["{", "[1", "NaN", "true", '"0.1"', "null{", "[]", "{}", '{"align": 3}', "-1e999", DIGITS, DEEP, "[NaN, 1]"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.slow
def test_damaged_metadata_of_scores_are_one_line(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any], name: str, text: str
) -> None:
    frame = pl.DataFrame({"row": range(60), "score": [0.5] * 60, "is_anomaly": [False] * 60, "label": [0] * 59 + [1]})
    path = tmp_path / "scores.parquet"
    frame.write_parquet(path, metadata={PREFIX + "threshold": "0.7", PREFIX + name: text})
    model = models / "model.onnx"
    for words in (
        ["evaluate", path],
        ["evaluate", path, "--engine", model],
        ["threshold", model, "--scores", path],
        ["report", path, "-o", tmp_path / "report.html", "--overwrite"],
        ["inspect", path],
    ):
        answer = run_cli(*words)  # an exception would be a traceback
        assert answer.code in (0, 1), words
        assert answer.code == 0 or answer.err.count("\n") == 1


def _write(model: Path, target: Path, properties: dict[str, str]) -> None:
    edited = onnx.load(model)
    for entry in list(edited.metadata_props):
        name = entry.key.removeprefix(PREFIX)
        if name == "digest":
            edited.metadata_props.remove(entry)
        elif name in properties:
            entry.value = properties[name]
    onnx.save(edited, target)
