"""Checkpoints: whole or refused, and never executed."""

import os
import pickle
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from at_infer.config import DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.errors import CheckpointError, OutputError
from at_infer.models.statistics import Normal, Scaler, Threshold, ValidationRecord
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from training.checkpoint import FORMAT, Checkpoint, read_tensors, write_tensors
from training.model import AnomalyTransformer

PUBLISHED = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"


@pytest.fixture
def checkpoint() -> Checkpoint:
    model = ModelConfig(features=2, window=10, width=8, heads=2, layers=1, feed_forward=8)
    return Checkpoint(
        model=model,
        state_dict=AnomalyTransformer(model).state_dict(),
        columns=["a", "größe"],
        time_column=None,
        series_column=None,
        scaler=Scaler(mean=[0.1, 1e300], scale=[1.0, 1e-30]),
        fill="forward",
        discrepancy=DiscrepancyConfig(layer=0),
        score=ScoreConfig(mode="paper"),
        quantile_levels=list(QUANTILE_LEVELS),
        validation=[
            ValidationRecord(
                threshold=Threshold(value=0.5, method="ratio", ratio=0.01, validation_rows=60),
                quantiles={"paper": [0.0] * len(QUANTILE_LEVELS)},
            ),
            ValidationRecord(
                align="last",
                threshold=Threshold(value=0.75, method="ratio", ratio=0.01, validation_rows=51),
                quantiles={"paper": [1.0] * len(QUANTILE_LEVELS)},
            ),
        ],
        normal=Normal(error=[0.5, 0.0], centred_error=[0.1, 0.0], discrepancy={"paper": [20.0, 1.0]}),
        train={
            "evaluations": [{"step": 1, "loss": 0.25}],
            "steps": {"reconstruction": torch.arange(3.0)},
            "stride": None,
        },
    )


@pytest.fixture
def path(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    checkpoint.save(tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        Checkpoint.load(path)
    return str(error.value)


@pytest.mark.parametrize("live", [True, False])
def test_a_checkpoint_of_format_1_is_read(checkpoint: Checkpoint, path: Path, live: bool) -> None:
    content = read_tensors(path)
    whole, last = content.pop("validation")
    old = {"format": 1, "threshold": whole["threshold"], "quantiles": whole["quantiles"]}
    causal = {"causal": {"threshold": last["threshold"], "quantiles": last["quantiles"]}}
    write_tensors(path, content | old | (causal if live else {}))  # the first versions knew nothing of last rows
    assert Checkpoint.load(path).validation == (checkpoint.validation if live else checkpoint.validation[:1])


def test_a_round_trip_keeps_every_part(checkpoint: Checkpoint, path: Path) -> None:
    back = Checkpoint.load(path)
    for name in Checkpoint.__slots__:
        if name not in ("state_dict", "train"):
            assert getattr(back, name) == getattr(checkpoint, name), name
    torch.testing.assert_close(back.state_dict, checkpoint.state_dict, rtol=0, atol=0)
    torch.testing.assert_close(back.train, checkpoint.train, rtol=0, atol=0)
    assert [entry.name for entry in path.parent.iterdir()] == ["ckpt.pt"]


def test_the_network_comes_back_ready_to_score(checkpoint: Checkpoint, path: Path) -> None:
    network = Checkpoint.load(path).network()
    assert not network.training
    x = torch.rand(3, 10, 2)
    with torch.inference_mode():
        assert torch.equal(network(x)[0], checkpoint.network()(x)[0])


def test_it_is_tensors_and_plain_values_under_the_agreed_names(path: Path) -> None:
    content = torch.load(path, weights_only=True)
    agreed = {"format", "model", "state_dict", "columns", "scaler", "validation", "train"}
    assert agreed <= content.keys()
    assert content["format"] == FORMAT
    assert content["scaler"] == {"mean": [0.1, 1e300], "scale": [1.0, 1e-30]}
    assert [(record["align"], record["delay"]) for record in content["validation"]] == [("window", 0), ("last", 0)]
    recorded = {"value": 0.5, "method": "ratio", "ratio": 0.01, "validation_rows": 60}
    assert content["validation"][0]["threshold"] == recorded


# Refused


@pytest.mark.parametrize("format_", [FORMAT + 1, 0, 99])
def test_another_format_is_refused_with_the_way_out(path: Path, format_: int) -> None:
    write_tensors(path, torch.load(path, weights_only=True) | {"format": format_, "model": "unknown"})
    expected = f"{path}: has checkpoint format {format_}, this version reads 1 and {FORMAT}; upgrade at-infer"
    assert refused(path) == expected


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    contents = [b"", b"hello\n" * 100, b'{"json": 1}', b"PAR1" * 100, b"PK\x03\x04 no zip", bytes(1000), b"\x80\x02"]
    for content in contents:
        path.write_bytes(content)
        assert refused(path) == f"{path}: is not a checkpoint, or is damaged"
    assert refused(tmp_path / "no.pt") == f"{tmp_path}/no.pt: cannot be read (No such file or directory)"
    assert refused(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)"


def test_tensors_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    foreign: list[Any] = [torch.zeros(3), [1, 2], {}, {"weight": torch.zeros(2)}, {1: 2}, {"format": torch.zeros(2)}]
    for content in foreign:
        torch.save(content, path)
        assert refused(path) == f"{path}: is not a checkpoint of at-infer"
    torch.save(torch.nn.Linear(2, 2).state_dict(), path)
    assert refused(path) == f"{path}: is not a checkpoint of at-infer"


def test_a_published_checkpoint_is_recognised(tmp_path: Path) -> None:
    assert "it looks like one of the published implementation" in refused(PUBLISHED)


@pytest.mark.slow
def test_a_torchscript_archive_is_refused_without_a_word_of_torch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "import torch; torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), 'x.pt')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, check=True)
    path = tmp_path / "x.pt"
    assert refused(path) == f"{path}: is not a checkpoint, or is damaged"
    assert capfd.readouterr() == ("", "")


Edit = Callable[[dict[str, Any]], Any]
EDITS: dict[str, Edit] = {
    "a part is missing": lambda c: c.pop("model"),
    "weights are missing": lambda c: c["state_dict"].popitem(),
    "a weight has another shape": lambda c: c["state_dict"].update({"norm.weight": torch.zeros(3)}),
    "a weight is no tensor": lambda c: c["state_dict"].update({"norm.weight": "x"}),
    "weights are a list": lambda c: c.update(state_dict=[1]),
    "the model is a list": lambda c: c.update(model=[1, 2]),
    "the model has a field too many": lambda c: c["model"].update(surprise=1),
    "the width is a word": lambda c: c["model"].update(width="x"),
    "the width is made up": lambda c: c["model"].update(width=10**9, heads=1),
    "the number of layers is made up": lambda c: c["model"].update(layers=10**9),
    "the feed-forward part is made up": lambda c: c["model"].update(feed_forward=10**9),
    "the heads do not divide": lambda c: c["model"].update(heads=3),
    "the score mode is unknown": lambda c: c["score"].update(mode="best"),
    "the fill policy is unknown": lambda c: c.update(fill="guess"),
    "the threshold is a number": lambda c: c["validation"][0].update(threshold=0.5),
    "no record is of whole windows": lambda c: c["validation"].pop(0),
    "a column is missing": lambda c: c["columns"].pop(),
    "the scaler is too long": lambda c: c["scaler"]["mean"].append(1.0),
    "the scaler is nothing": lambda c: c.update(scaler=None),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
@pytest.mark.slow
def test_an_edited_checkpoint_is_refused_in_one_line(edit: Edit, path: Path) -> None:
    content = torch.load(path, weights_only=True)
    edit(content)
    write_tensors(path, content)
    message = refused(path)
    assert message.startswith(f"{path}: is damaged or was edited (")
    assert "\n" not in message


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert refused(path).startswith(f"{path}: is ")


def test_flipped_bytes_are_an_answer_or_an_error_but_never_a_crash(path: Path) -> None:
    whole = path.read_bytes()
    dice = random.Random(0)
    outcomes = set()
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(3):
            content[dice.randrange(len(content))] = dice.randrange(256)
        path.write_bytes(content)
        try:
            Checkpoint.load(path)
            outcomes.add("loaded")
        except CheckpointError as error:
            outcomes.add(str(error).split(":")[1][:7])
    assert outcomes <= {"loaded", " is not", " unpack"}  # its checksums find nearly all, a false size the rest


def test_a_damaged_directory_of_the_archive_never_changes_a_weight(path: Path) -> None:
    whole, sound = path.read_bytes(), Checkpoint.load(path)
    begin, dice, loaded = whole.index(b"PK\x01\x02"), random.Random(0), 0
    records = [found.start() for found in re.finditer(b"PK\x01\x02", whole)]
    attributes = [record + 38 for record in records[:12]]  # 0xff among them: each entry is a folder
    for at in [*attributes, *(dice.randrange(begin, len(whole) - 4) for _ in range(150))]:
        path.write_bytes(whole[:at] + b"\xff" * 4 + whole[at + 4 :])
        try:
            found = Checkpoint.load(path)
        except CheckpointError:
            assert at not in attributes or refused(path).endswith("is not a checkpoint, or is damaged")
            continue
        loaded += 1
        assert at not in attributes
        assert all(torch.equal(found.state_dict[name], weights) for name, weights in sound.state_dict.items())
    assert loaded  # where it does not matter


# Malice


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_not_executed(protocol: int, tmp_path: Path) -> None:
    path, marker = tmp_path / "x.pt", tmp_path / "marker"
    with path.open("wb") as file:
        pickle.dump({"format": 1, "model": Malicious(marker)}, file, protocol=protocol)
    assert refused(path) in (
        f"{path}: holds objects that could run code; refused",
        f"{path}: is not a checkpoint, or is damaged",
    )
    assert not marker.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_object_among_tensors_is_refused_and_not_executed(zipped: bool, path: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    content = torch.load(path, weights_only=True) | {"train": Malicious(marker)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    assert refused(path) == f"{path}: holds objects that could run code; refused"
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "the file was not malicious, so the test proved nothing"


def test_a_whole_model_is_an_object_and_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pt")
    assert refused(tmp_path / "x.pt") == f"{tmp_path}/x.pt: holds objects that could run code; refused"


# Writing


def test_a_full_disk_is_one_line_and_leaves_the_old_file(path: Path, checkpoint: Checkpoint) -> None:
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputError) as error:
            checkpoint.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(error.value).startswith(f"{path}: could not be written (")
    assert "\n" not in str(error.value)
    assert path.read_bytes() == old
    assert [entry.name for entry in path.parent.iterdir()] == ["ckpt.pt"]


def test_numbers_of_numpy_do_not_get_into_a_checkpoint_unnoticed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """They are objects, so that a checkpoint with one could not be read again."""
    path = tmp_path / "x.pt"
    replace(checkpoint, train={"value": np.float64(1.0)}).save(path)
    with pytest.raises(CheckpointError, match="holds objects that could run code; refused"):
        read_tensors(path)


def test_networks_of_a_loaded_checkpoint_share_nothing(path: Path) -> None:
    loaded = Checkpoint.load(path)
    kept = {name: tensor.clone() for name, tensor in loaded.state_dict.items()}
    changed, other = loaded.network(), loaded.network()
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter += 1
    for found in (loaded.state_dict, other.state_dict()):
        assert all(torch.equal(found[name], tensor) for name, tensor in kept.items())
