"""Checkpoints of the published implementation."""

from pathlib import Path

import pytest
import torch

from at_infer.config import ModelConfig
from at_infer.errors import CheckpointError
from training.published import load_published

CHECKPOINT = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"


def edited(tmp_path: Path, **changes: torch.Tensor | None) -> Path:
    state = torch.load(CHECKPOINT, weights_only=True)
    for name, tensor in changes.items():
        if tensor is None:
            del state[name]
        else:
            state[name] = tensor
    torch.save(state, tmp_path / "edited.pth")
    return tmp_path / "edited.pth"


def test_the_tensors_tell_everything_but_the_window():
    network = load_published(CHECKPOINT, window=50)
    assert network.config == ModelConfig(
        features=5, window=50, width=32, heads=4, layers=2, feed_forward=32, padding="circular"
    )


def test_another_window_can_be_asked_for():
    network = load_published(CHECKPOINT, window=100, heads=4)
    assert network(torch.randn(1, 100, 5))[0].shape == (1, 100, 5)


def test_a_checkpoint_saved_from_data_parallel_loads_as_well(tmp_path):
    state = torch.load(CHECKPOINT, weights_only=True)
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, tmp_path / "parallel.pth")
    assert load_published(tmp_path / "parallel.pth", window=50).config.heads == 4


def test_contradicting_heads_are_refused():
    with pytest.raises(CheckpointError, match="has 4 heads, not 8"):
        load_published(CHECKPOINT, window=50, heads=8)


def test_a_missing_tensor_is_named(tmp_path):
    path = edited(tmp_path, **{"encoder.attn_layers.1.attention.out_projection.bias": None})
    with pytest.raises(CheckpointError, match=r"has no encoder\.attn_layers\.1\.attention\.out_projection\.bias"):
        load_published(path, window=50)


def test_tensors_that_do_not_fit_each_other_are_refused(tmp_path):
    path = edited(tmp_path, **{"projection.weight": torch.zeros(5, 31)})
    with pytest.raises(CheckpointError, match="do not fit"):
        load_published(path, window=50)


def test_a_foreign_position_table_is_refused(tmp_path):
    path = edited(tmp_path, **{"embedding.position_embedding.pe": torch.zeros(1, 5000, 32)})
    with pytest.raises(CheckpointError, match="position table"):
        load_published(path, window=50)


def test_a_window_beyond_the_position_table_is_refused():
    with pytest.raises(CheckpointError, match="position table ends at 5000"):
        load_published(CHECKPOINT, window=5001)


@pytest.mark.parametrize("content", [{}, {"a": torch.zeros(3)}, [1, 2], {"a": 1}, {1: torch.zeros(3)}], ids=str)
def test_something_else_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match="not a state_dict of the published implementation"):
        load_published(tmp_path / "other.pth", window=50)
