"""The PyTorch model as a contestant: what an engine has to beat, and to agree with."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from at_infer.config import head_rule
from export.graphs import ScoreGraph
from training.checkpoint import Checkpoint

Floats = NDArray[np.float32]


def pytorch_scorers(checkpoint: Checkpoint, threads: int | None) -> Iterator[tuple[str, Callable[[Floats], Floats]]]:
    """The eager model, and the compiled one where torch.compile works: name and scoring function."""
    if threads is not None:
        torch.set_num_threads(threads)
    discrepancy = replace(checkpoint.discrepancy, head_rule=head_rule(checkpoint.score.mode, checkpoint.discrepancy))
    graph = ScoreGraph(
        checkpoint.network(), checkpoint.scaler, discrepancy, checkpoint.score, checkpoint.normal, ["score"]
    ).eval()
    yield "pytorch eager", _scorer(graph)
    yield "pytorch compiled", _scorer(torch.compile(graph, dynamic=True))


def _scorer(graph: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> Callable[[Floats], Floats]:
    @torch.inference_mode()
    def score(windows: Floats) -> Floats:
        answer: Floats = graph(torch.from_numpy(windows))[0].numpy()
        return answer

    return score
