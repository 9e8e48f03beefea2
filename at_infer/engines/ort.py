"""ONNX Runtime: the only file that imports it for scoring."""

from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from at_infer.engines import Floats, Provider, Scoring
from at_infer.engines.providers import PROVIDERS, prepare
from at_infer.engines.tensorrt.batching import DEFAULT_PROFILE
from at_infer.errors import ConfigError, EngineError, MissingExtraError
from at_infer.models.agreement import check_shapes
from at_infer.models.metadata import LIVE_GRAPH, Metadata
from at_infer.models.signatures import check_digest
from at_infer.threads import cpu_count
from at_infer.untrusted import check_name

SMALL_BYTES = 2 << 20
"""Of the file of a small network."""
NEEDED = {
    "score": ("score",),
    "associations": ("reconstruction", "prior_0", "series_0"),
}


class OnnxEngine(Scoring):
    """An ONNX file on one execution provider, and on no other."""

    def __init__(self, path: Path, *, provider: Provider = "cpu", threads: int | None = None) -> None:
        self.path, self.provider = path, provider
        check_name(path, EngineError)
        check_digest(path)
        if provider == "cpu":
            # A window of a small network is too little work for two threads: they would mostly wait for each other.
            small = path.stat().st_size < SMALL_BYTES
            self.lanes = (threads or cpu_count()) if small else 1
            threads = 1 if small else threads
        self.session = open_session(path, provider=provider, threads=threads)
        with utf8_names(path):
            self.outputs = tuple(output.name for output in self.session.get_outputs())
            properties = self.session.get_modelmeta().custom_metadata_map
            self.metadata = Metadata.from_properties(properties, str(path))
        self.has_last = provider == "cpu" and LIVE_GRAPH in properties
        self._live_graph, self._opening = properties.get(LIVE_GRAPH, ""), Lock()
        self._live_session: Any = None
        if self.metadata is not None:
            check_graph(self.session, self.metadata, path)
        self.missing = self._missing()
        window = self.session.get_inputs()[0]
        self.input_name, self.input_shape = window.name, window.shape
        self._row_shape = tuple(size for size in window.shape[1:] if isinstance(size, int))

    def _missing(self) -> list[str]:
        """What a file of another exporter lacks for scoring."""
        if self.metadata is not None:
            return []
        missing = ["metadata (columns, scaler, window, threshold)"]
        if not any(set(names) <= set(self.outputs) for names in NEEDED.values()):
            missing.append("an output named 'score', or 'reconstruction' with associations")
        return missing

    def run(self, windows: Floats) -> dict[str, Floats]:
        """(B,N,F) raw values -> every output of the graph."""
        run = self._run_split if self.provider in ("tensorrt", "rtx") else self._run_whole
        return dict(zip(self.outputs, self._checked(run, windows), strict=True))

    def run_last(self, windows: Floats) -> Floats:
        """(B,N,F) raw values -> the reconstruction of each window's last row (B,F)."""
        session = self._live_session or self._open_live_once()
        found: Floats = self._checked(lambda given: session.run(None, {self.input_name: given}), windows)[0]
        return found

    def _open_live_once(self) -> Any:
        with self._opening:
            self._live_session = self._live_session or self._open_live()
        return self._live_session

    def _open_live(self) -> Any:
        """The graph inside the file; most runs do not need it."""
        try:
            graph = b64decode(self._live_graph, validate=True)
        except ValueError:
            raise EngineError(f"{self.path}: its live graph is damaged; export the model again") from None
        session = open_session(graph, threads=1)  # of one layer, one row at its end: too little for two
        if self.metadata is not None:
            check_graph(session, self.metadata, self.path)
        if [output.name for output in session.get_outputs()] != ["last"]:
            raise EngineError(f"{self.path}: its live graph has other inputs or outputs; export the model again")
        return session

    def _checked(self, run: Callable[[Floats], list[Any]], windows: Floats) -> list[Any]:
        """What `run` makes of windows of the right shape."""
        if windows.ndim != len(self.input_shape) or windows.shape[1:] != self._row_shape:
            raise EngineError(f"{self.path}: takes windows of shape {self.input_shape}, not {list(windows.shape)}")
        if not len(windows):  # which not every graph can reshape
            return [found[:0] for found in self._checked(run, np.zeros((1, *windows.shape[1:]), np.float32))]
        try:
            return run(np.ascontiguousarray(windows, np.float32))
        except Exception as error:  # its exception types are not public
            raise EngineError(f"{self.path}: ONNX Runtime failed ({' '.join(str(error).split())[:300]})") from None

    def _run_split(self, windows: Floats) -> list[Any]:
        """Engines of TensorRT have a largest batch."""
        most = DEFAULT_PROFILE.max
        parts = [self._run_whole(windows[i : i + most]) for i in range(0, len(windows), most)]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _run_whole(self, windows: Floats) -> list[Any]:
        return self._run_bound(windows) if self.provider in ("cuda", "tensorrt") else self._run_plain(windows)

    def _run_plain(self, windows: Floats) -> list[Any]:
        # On CPU the session reads the array where it lies; binding it first measured no faster.
        found: list[Any] = self.session.run(None, {self.input_name: windows})
        return found

    def _run_bound(self, windows: Floats) -> list[Any]:
        """On a GPU, outputs stay on the device until all are computed, then come over together."""
        binding = self.session.io_binding()
        binding.bind_cpu_input(self.input_name, windows)
        for name in self.outputs:
            binding.bind_output(name, "cuda")
        self.session.run_with_iobinding(binding)
        found: list[Any] = binding.copy_outputs_to_cpu()
        return found

    def describe(self) -> str:
        """Runtime, version and provider."""
        import onnxruntime

        return f"ONNX Runtime {onnxruntime.__version__} ({self.provider})"

    def close(self) -> None:
        """Drop the sessions and with them the device memory."""
        self._live_session = None
        del self.session


def open_session(
    model: Path | bytes, *, provider: Provider = "cpu", threads: int | None = None, optimize: bool = True
) -> Any:
    """A session on exactly the requested provider; ONNX Runtime would fall back to the CPU."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise MissingExtraError("onnxruntime: is not installed; pip install onnxruntime") from None
    ort.set_default_logger_severity(4)  # what goes wrong is raised; the rest is noise
    name = model if isinstance(model, Path) else "model"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads or 0
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    # Without VNNI, 8-bit products would overflow their 16-bit sums; this costs no time that could be measured.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = list(PROVIDERS["cpu"]) if provider == "cpu" else prepare(ort, options, provider, model)
    source = str(model) if isinstance(model, Path) else model
    try:
        # In a thread of its own: whoever makes the first session is left with denormal numbers switched off.
        with ThreadPoolExecutor(1) as maker:
            session = maker.submit(
                ort.InferenceSession, source, options, providers=providers, enable_fallback=False
            ).result()
    except Exception as error:  # its exception types are not public
        reason = " ".join(str(error).split())[:300]
        if provider == "cpu":
            raise EngineError(f"{name}: is not an ONNX model that ONNX Runtime can open ({reason})") from None
        raise _unusable(name, provider, reason) from None
    if session.get_providers()[0] != PROVIDERS[provider][0]:
        raise _unusable(name, provider, f"it would have used {session.get_providers()[0]}")
    return session


@contextmanager
def utf8_names(path: Path) -> Iterator[None]:
    """ONNX Runtime opens a model whose names or metadata are not UTF-8, and fails when it is asked for them."""
    try:
        yield
    except UnicodeDecodeError:
        raise EngineError(f"{path}: is damaged, a name or its metadata are not UTF-8; export the model again") from None


def check_graph(session: Any, metadata: Metadata, path: Path) -> None:
    """Inputs and outputs of the graph must match its metadata, before anything of their size is allocated."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    try:
        if len(inputs) != 1:
            raise ConfigError(f"graph: has {len(inputs)} inputs instead of one")
        check_shapes(metadata.model, *({one.name: one.shape for one in part} for part in (inputs, outputs)))
        for one in [*inputs, *outputs]:
            if one.type != "tensor(float)":
                raise ConfigError(f"graph: {one.name!r} is {one.type} instead of float32")
    except ConfigError as error:
        raise EngineError(
            f"{path}: its metadata are not those of its graph ({error}); export the model again"
        ) from None


def _unusable(name: object, provider: str, reason: str) -> EngineError:
    return EngineError(
        f"{name}: ONNX Runtime's {provider} provider does not work on this machine ({reason}); run at-infer doctor, "
        f"or pass provider='cpu'"
    )
