"""Engines: one contract, opened by suffix; each runtime is imported by exactly one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Provider as Provider
from at_infer.errors import EngineError
from at_infer.models.kinds import ONNX_SUFFIXES, PLAN_SUFFIXES, is_onnx, is_plan
from at_infer.untrusted import check_regular

if TYPE_CHECKING:
    from at_infer.models.metadata import Metadata

Floats = NDArray[np.float32]


class Engine(Protocol):
    """Runs windows through an exported model. A context manager: closing frees its device memory."""

    path: Path
    metadata: "Metadata | None"
    """None if the file is not an export of at-infer; `missing` then lists what scoring needs."""
    missing: list[str]
    outputs: tuple[str, ...]
    """Names of the tensors that `run` returns."""
    lanes: int
    """Threads that may be in `run` at once, if it is faster so; 0: only the one that opened the engine."""
    has_last: bool
    """Can it reconstruct only the last row of a window?"""

    def run(self, windows: Floats) -> dict[str, Floats]:
        """(B,N,F) raw values -> every output of the graph, for any B, in arrays of their own."""

    def run_last(self, windows: Floats) -> Floats:
        """(B,N,F) raw values -> the reconstruction of each window's last row (B,F), if it `has_last`."""

    def score(self, windows: Floats) -> Floats:
        """(B,N,F) raw values -> scores (B,N), whichever graph this is."""

    def describe(self) -> str:
        """Runtime, version and device in a few words."""

    def close(self) -> None:
        """Free what the runtime holds."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_engine(
    path: str | Path, *, provider: Provider = "cpu", threads: int | None = None, trust: bool = False
) -> Engine:
    """Open an exported model: ONNX by ONNX Runtime on `provider`, a plan by TensorRT on the GPU.

    Nothing falls back to another device: what cannot run as asked is an error. A plan without its sidecar opens only
    with `trust`, because loading a plan runs the code in it.

    >>> import numpy as np
    >>> from at_infer import open_engine
    >>> with open_engine("model.onnx") as engine:
    ...     model = engine.metadata.model
    ...     scores = engine.score(np.zeros((4, model.window, model.features), np.float32))
    >>> scores.shape == (4, model.window)
    True
    """
    path = Path(path)
    if not path.exists():
        raise EngineError(f"{path}: no such file")
    check_regular(path, EngineError)
    if is_onnx(path):
        from at_infer.engines.ort import OnnxEngine

        return OnnxEngine(path, provider=provider, threads=threads)
    if is_plan(path):
        from at_infer.engines.tensorrt.plan import PlanEngine

        return PlanEngine(path, trust=trust)
    known = ", ".join((*ONNX_SUFFIXES, *PLAN_SUFFIXES))
    raise EngineError(f"{path}: the suffix {path.suffix!r} is not that of an engine; known are {known}")


class Scoring:
    """The parts of `Engine` that are the same for every runtime."""

    path: Path
    metadata: "Metadata | None"
    missing: list[str]
    lanes = 0
    has_last = False

    def run(self, windows: Floats) -> dict[str, Floats]:
        """Required of every runtime."""
        raise NotImplementedError

    def run_last(self, windows: Floats) -> Floats:
        """Optional for a runtime."""
        raise NotImplementedError

    def score(self, windows: Floats) -> Floats:
        """(B,N,F) raw values -> scores (B,N)."""
        from at_infer.models.criterion import score_outputs

        if self.metadata is None:
            raise EngineError(f"{self.path}: cannot score, it lacks {'; '.join(self.missing)}; use at-infer export")
        return score_outputs(windows, self.run(windows), self.metadata)

    def close(self) -> None:
        """Free what the runtime holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
