"""The PyTorch model as a contestant: what an engine has to beat, and to agree with."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from at_infer.config import head_rule
from at_infer.models.criterion import fusion_rows
from at_infer.models.fusion import fuse_windows
from export.graphs import FUSION_OUTPUTS, Output, ScoreGraph
from training.checkpoint import Checkpoint

Floats = NDArray[np.float32]


def pytorch_scorers(checkpoint: Checkpoint, threads: int | None) -> Iterator[tuple[str, Callable[[Floats], Floats]]]:
    """The eager model, and the compiled one where torch.compile works: name and scoring function."""
    if threads is not None:
        torch.set_num_threads(threads)
    discrepancy = replace(checkpoint.discrepancy, head_rule=head_rule(checkpoint.score.mode, checkpoint.discrepancy))
    fused = checkpoint.score.mode == "fusion"
    outputs: tuple[Output, ...] = FUSION_OUTPUTS if fused else ("score",)
    graph = ScoreGraph(
        checkpoint.network(), checkpoint.scaler, discrepancy, checkpoint.score, checkpoint.normal, outputs
    ).eval()
    yield "pytorch eager", _scorer(graph, checkpoint)
    yield "pytorch compiled", _scorer(torch.compile(graph, dynamic=True), checkpoint)


def _scorer(
    graph: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], checkpoint: Checkpoint
) -> Callable[[Floats], Floats]:
    @torch.inference_mode()
    def score(windows: Floats) -> Floats:
        answers: list[Floats] = [answer.numpy() for answer in graph(torch.from_numpy(windows))]
        if checkpoint.score.mode != "fusion":
            return answers[0]
        assert checkpoint.normal is not None
        assert checkpoint.normal.views is not None
        rows = fusion_rows(windows, dict(zip(FUSION_OUTPUTS, answers, strict=True)), checkpoint.scaler)
        return fuse_windows(rows, checkpoint.normal.views, checkpoint.score)

    return score
