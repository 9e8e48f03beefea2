"""Both sides of the parity check: windows through PyTorch and through ONNX Runtime."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from at_infer.config import ModelConfig
from at_infer.engines.ort import open_session
from export.graphs import AssociationsGraph, ScoreGraph
from export.parity_variants import without_bfloat16
from export.to_onnx import INPUT

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Outputs = dict[str, Floats]

RANDOM_WINDOWS = 32
BATCH = 16


def run_reference(
    graph: ScoreGraph | AssociationsGraph, windows: Floats | Doubles, dtype: torch.dtype = torch.float32
) -> Outputs:
    """The outputs of PyTorch."""
    graph = copy.deepcopy(graph).to(dtype).eval()
    with torch.inference_mode():
        batches = [graph(torch.from_numpy(part).to(dtype)) for part in _batches(windows)]
    parts = [torch.cat(output).numpy() for output in zip(*batches, strict=True)]
    return dict(zip(graph.outputs, parts, strict=True))


def run_onnx(model: onnx.ModelProto, windows: Floats) -> Outputs:
    """The outputs of ONNX Runtime."""
    session = open_session(without_bfloat16(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    batches = [session.run(None, {INPUT: part}) for part in _batches(windows)]
    return dict(zip(names, (np.concatenate(parts) for parts in zip(*batches, strict=True)), strict=True))


def random_windows(config: ModelConfig, mean: Floats, scale: Floats) -> Floats:
    """Noise and noisy sines, in raw units."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(RANDOM_WINDOWS, config.window, config.features))
    steps = np.arange(config.window)[None, :, None]
    period = rng.uniform(min(4, config.window), config.window, size=(RANDOM_WINDOWS // 2, 1, config.features))
    z[::2] = 0.2 * z[::2] + 1.4 * np.sin(2 * np.pi * steps / period)
    return (mean + scale * z).astype(np.float32)


def extreme_windows(config: ModelConfig, mean: Floats, scale: Floats) -> Floats:
    """Zeros, constants, tiny and huge values, and spikes of 1e6 standard deviations."""
    n, f = config.window, config.features
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(n, f))
    spike, spikes = noise.copy(), noise.copy()
    spike[n // 2, 0] = 1e6
    spikes[n // 3, :] = -1e6
    scaled = np.stack([np.zeros((n, f)), np.full((n, f), 3.0), noise * 1e-30, noise * 1e6, spike, spikes])
    raw = np.stack([np.zeros((n, f)), np.full((n, f), 1e6)])
    return np.concatenate([mean + scale * scaled, raw]).astype(np.float32)


def _batches(windows: Floats | Doubles) -> Sequence[NDArray[Any]]:
    return np.array_split(windows, -(-len(windows) // BATCH))
