"""Checkpoints and states of trainings whose archive is sound, and whose values are not."""

import copy
import zipfile
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import torch

from at_infer.config import ModelConfig
from at_infer.errors import AtInferError, CheckpointError
from at_infer.untrusted import shown
from tests.attack.test_state import places
from tests.checkpoints import checkpoint
from training.checkpoint import Checkpoint, read_tensors
from training.model import AnomalyTransformer
from training.parent import Parent
from training.resume import TrainingState

HOSTILE = (None, True, -1, "x", {}, 2**62, torch.zeros(3))


def nested(depth: int) -> list[Any]:
    """A list of few objects that has ten to the power of `depth` members when it is written out."""
    inner: list[Any] = ["x"]
    for _ in range(depth):
        inner = [inner] * 10
    return inner


def test_a_value_that_never_ends_is_shown_at_once() -> None:
    assert len(shown(nested(40))) < 70
    assert shown({"a": 1}) == "{'a': 1}"


@pytest.mark.slow
def test_a_small_checkpoint_that_asks_for_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that are there once and named often; an archive whose entries are compressed, which torch never does."""
    monkeypatch.setattr("training.checkpoint.MOST_VALUES", 1_000_000)  # ten times as many take ten times as long
    path = tmp_path / "bomb.pt"
    torch.save({"format": 2, "train": nested(40)}, path)
    with pytest.raises(CheckpointError, match="holds more than 1 million values"):
        read_tensors(path)
    torch.save({"zeros": torch.zeros(1 << 18)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert path.stat().st_size < 10_000
    with pytest.raises(CheckpointError, match="unpacks to more than it holds"):
        read_tensors(path)


def test_a_checkpoint_that_was_trained_in_an_odd_way_is_one_line_to_start_from() -> None:
    sound = checkpoint()
    for name in ("config", "learning_rate", "strategy", "lambda_", "batch_size"):
        for value in HOSTILE:
            odd = replace(sound, train={"config": value} if name == "config" else {"config": {name: value}})
            with suppress(AtInferError):
                Parent("ckpt.pt", "", odd).train_config()


def training() -> TrainingState:
    torch.manual_seed(0)
    network = AnomalyTransformer(ModelConfig(features=2, window=8, width=8, heads=2, layers=1, feed_forward=8))
    best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    adam = torch.optim.Adam(network.parameters(), lr=0.01)
    state = TrainingState(network, adam, torch.amp.GradScaler("cpu", enabled=False), torch.zeros(20, 2), best)
    for _ in range(3):
        step(state)
    return state


def step(state: TrainingState) -> None:
    for tensor in state.network.parameters():
        tensor.grad = torch.ones_like(tensor)
    state.optimizer.step()
    state.history[state.position.step] = 1.0
    state.position.step += 1


@pytest.mark.slow
def test_hostile_values_of_a_state_are_one_line_or_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, identity = tmp_path / "state.pt", {"train": {"seed": 1}, "data": "abc"}
    state = training()
    state.position.evaluations = [{"step": 3.0, "loss": 0.5}]
    state.save(path, identity)
    sound = read_tensors(path)
    training().restore(path, identity)
    refused, bugs = 0, []
    weights = list(sound["network"])
    for place in places(sound):
        if not place or {*weights[1:], *range(1, len(weights))} & {*place}:  # one of the weights stands for all
            continue
        for value in HOSTILE:
            changed = copy.deepcopy(sound)
            reduce(getitem, place[:-1], changed)[place[-1]] = value
            monkeypatch.setattr("training.resume.read_tensors", lambda _, changed=changed: changed)
            again = training()
            try:
                again.restore(path, identity)
                step(again)
            except CheckpointError:
                refused += 1
            except Exception as error:
                bugs.append((place, value, repr(error)))
    assert bugs == []
    assert refused > 100


def test_a_sound_checkpoint_is_read(tmp_path: Path) -> None:
    checkpoint().save(tmp_path / "ckpt.pt")
    assert Checkpoint.load(tmp_path / "ckpt.pt").columns == checkpoint().columns
