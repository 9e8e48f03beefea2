"""Options of an export."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from at_infer.config import Config, ExportPrecision, ScoreMode
from at_infer.engines.tensorrt.batching import DEFAULT_PROFILE, BatchProfile
from at_infer.errors import ExportError
from at_infer.models.metadata import Graph
from export.graphs import Output
from export.to_tensorrt import EngineChoice

CHOICES = tuple(name for name in get_args(Output) if name != "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig(Config):
    """What to write."""

    name: str = "model"
    """First part of the file names."""
    precision: ExportPrecision = "fp32"
    score_mode: ScoreMode | None = None
    """None: the checkpoint's."""
    outputs: tuple[Output, ...] | None = None
    """Of the score graph; None: what its score mode needs."""
    data: str | None = None
    """Parquet with real windows for the parity check."""
    calibration: str | None = None
    """Parquet with real windows that int8 is calibrated on."""
    engine: EngineChoice = "auto"
    engine_graph: Graph = "score"
    compute_capabilities: tuple[int, ...] | None = None
    """GPUs to build for with TensorRT-RTX; None: all that can run any precision."""
    batch: BatchProfile = DEFAULT_PROFILE
    portable: bool = False
    """A TensorRT plan for every GPU from Ampere on, and for later versions of TensorRT; slower."""
    atol: float | None = None
    rtol: float | None = None
    """Replace the tolerances of the parity check; both or neither."""

    def __post_init__(self) -> None:
        is_plain = Path(self.name).name == self.name and self.name.isprintable() and not self.name.startswith(".")
        if not is_plain or not 0 < len(self.name) <= 200:
            raise ExportError(f"name: {self.name!r} is not a prefix of file names; name folders in the output")
        self._choice("precision", ExportPrecision)
        self._choice("engine", EngineChoice)
        self._choice("engine_graph", Graph)
        if self.score_mode is not None:
            self._choice("score_mode", ScoreMode)
        if self.outputs is not None and not (self.outputs and set(self.outputs) <= set(CHOICES)):
            raise ExportError(f"outputs: {', '.join(self.outputs)} are not all of {', '.join(CHOICES)}")
        if (self.atol is None) != (self.rtol is None):
            raise ExportError(f"{'atol' if self.rtol is None else 'rtol'}: `atol` and `rtol` go together; give both")
        if self.precision == "int8" and self.calibration is None:
            raise ExportError("precision: int8 needs real rows to calibrate on; pass calibration='data.parquet'")
        if self.on_turing and self.precision != "fp16":
            raise ExportError(
                f"compute_capabilities: TensorRT-RTX has no {self.precision} matrix products on Turing; export with "
                f"precision='fp16', or leave 75 out"
            )
        if self.portable and self.engine != "tensorrt":
            raise ExportError(
                "portable: is for plans of TensorRT; pass engine='tensorrt' (plans of TensorRT-RTX are for many GPUs "
                "already)"
            )
        if self.engine != "none" and self.precision == "int8-dynamic" and self.engine != "auto":
            raise ExportError("precision: int8-dynamic is for CPUs; use precision='int8' for an engine")

    @property
    def on_turing(self) -> bool:
        """TensorRT-RTX cannot multiply in float32 there, so every product is lowered."""
        return 75 in (self.compute_capabilities or ())
