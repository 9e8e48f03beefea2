"""Batches through a plan, two in flight: while one is computed, the next is copied in and the last one out.

Nothing here knows CUDA or TensorRT: `Device` and `Context` are what it asks of them, and tests bring fakes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from at_infer.engines import Floats
from at_infer.engines.tensorrt.batching import BatchProfile, Piece, cut
from at_infer.errors import EngineError


class Device(Protocol):
    """Memory, streams and graphs of a GPU; addresses, streams and graphs are plain integers, as in CUDA."""

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Host memory that copies can use in the background."""

    def allocate(self, nbytes: int) -> int:
        """Device memory."""

    def open_stream(self) -> int:
        """A queue of work that runs beside the others."""

    def upload(self, address: int, source: NDArray[Any], stream: int) -> None:
        """Queue a copy to the device."""

    def download(self, target: NDArray[Any], address: int, stream: int) -> None:
        """Queue a copy from the device."""

    def wait(self, stream: int) -> None:
        """Return when everything in the queue is done."""

    def capture(self, stream: int, enqueue: Callable[[], None]) -> int:
        """Record what `enqueue` queues, without running it, as a graph."""

    def launch(self, graph: int, stream: int) -> None:
        """Queue a captured graph."""

    def close(self) -> None:
        """Free everything."""


class Context(Protocol):
    """The used part of TensorRT's IExecutionContext; its methods return False on failure."""

    def set_input_shape(self, name: str, shape: tuple[int, ...], /) -> bool:
        """Fix the shape of an input."""

    def set_tensor_address(self, name: str, memory: int, /) -> bool:
        """Say where on the device a tensor lies."""

    def execute_async_v3(self, stream_handle: int, /) -> bool:
        """Queue the computation."""


class Tensor(NamedTuple):
    """An input or output of the plan."""

    name: str
    shape: tuple[int, ...]
    """Without the batch."""
    dtype: np.dtype[Any]

    def nbytes(self, batch: int) -> int:
        """Of a buffer for this many windows."""
        return batch * int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Work:
    """Something to queue on a stream: call by call at first, as one graph once it has been captured."""

    def __init__(self, device: Device, stream: int, enqueue: Callable[[], None]) -> None:
        self.device, self.stream, self.enqueue = device, stream, enqueue
        self.graph: int | None = None

    def start(self) -> None:
        """Queue it."""
        if self.graph is None:
            self.enqueue()
        else:
            self.device.launch(self.graph, self.stream)

    def capture(self) -> None:
        """Record it as one graph, which launches in one call; only after a run, which sets the context up."""
        if self.graph is None:
            try:
                self.graph = self.device.capture(self.stream, self.enqueue)
            except EngineError as error:
                raise EngineError(f"{error}; open the plan with cuda_graph=False") from error


class Slot:
    """One batch size of one lane: a context fixed to that shape, its buffers, and graphs of the whole batch.

    A context of its own, because running another shape through a context invalidates the graphs captured from it.
    """

    def __init__(
        self, device: Device, stream: int, context: Context, tensors: tuple[Tensor, Sequence[Tensor]], size: int
    ) -> None:
        self.device, self.stream, self.context = device, stream, context
        self.window, self.outputs = tensors
        self.batch = Work(device, stream, self._enqueue)
        self.computation = Work(device, stream, self._execute)  # without copies
        self.host_in = device.pinned((size, *self.window.shape), self.window.dtype)
        self.host_out = {t.name: device.pinned((size, *t.shape), t.dtype) for t in self.outputs}
        self.addresses = {t.name: device.allocate(t.nbytes(size)) for t in (self.window, *self.outputs)}
        _demand(context.set_input_shape(self.window.name, (size, *self.window.shape)), f"a batch of {size}")
        for name, address in self.addresses.items():
            _demand(context.set_tensor_address(name, address), f"the buffer of {name!r}")

    def start(self, windows: Floats) -> None:
        """Queue a batch, padded with its last window: values the model can certainly bear."""
        count = len(windows)
        self.host_in[:count] = windows
        self.host_in[count:] = windows[-1]
        self.batch.start()

    def _enqueue(self) -> None:
        self.device.upload(self.addresses[self.window.name], self.host_in, self.stream)
        self._execute()
        for name, target in self.host_out.items():
            self.device.download(target, self.addresses[name], self.stream)

    def _execute(self) -> None:
        _demand(self.context.execute_async_v3(self.stream), "to run a batch")


class Lane:
    """A stream with a slot for each batch size met so far; one batch at a time."""

    def __init__(self, device: Device, make_slot: Callable[[int, int], Slot], *, capture: bool) -> None:
        self.device, self.stream = device, device.open_stream()
        self._make_slot, self._capture = make_slot, capture
        self._slots: dict[int, Slot] = {}

    def start(self, windows: Floats, size: int) -> None:
        """Queue a batch of `size`."""
        if size not in self._slots:
            self._slots[size] = self._make_slot(self.stream, size)
        self._slots[size].start(windows)

    def finish(self, piece: Piece, results: dict[str, Floats]) -> None:
        """Wait for the batch and put its outputs, without padding, in their place."""
        self.device.wait(self.stream)
        slot = self._slots[piece.size]
        for name, found in slot.host_out.items():
            results[name][piece.start : piece.start + piece.count] = found[: piece.count]
        if self._capture:
            slot.batch.capture()

    def start_computation(self, size: int) -> None:
        """Queue a batch without copies, on the windows that the last batch of this size left on the device."""
        if size not in self._slots:
            raise EngineError(f"no batch of {size} has run yet, so there is nothing on the GPU to compute on")
        self._slots[size].computation.start()

    def finish_computation(self, size: int) -> None:
        """Wait for it."""
        self.device.wait(self.stream)
        if self._capture:
            self._slots[size].computation.capture()


def run_lanes(
    lanes: Sequence[Lane], windows: Floats, profile: BatchProfile, outputs: Sequence[Tensor]
) -> dict[str, Floats]:
    """(B,N,F) -> every output for all B windows, in order."""
    results = {t.name: np.empty((len(windows), *t.shape), np.float32) for t in outputs}
    in_flight: deque[tuple[Lane, Piece]] = deque()

    def finish_oldest() -> None:
        lane, piece = in_flight[0]
        lane.finish(piece, results)
        in_flight.popleft()

    try:
        for i, piece in enumerate(cut(len(windows), profile)):
            if len(in_flight) == len(lanes):
                finish_oldest()
            lane = lanes[i % len(lanes)]
            in_flight.append((lane, piece))
            lane.start(windows[piece.start : piece.start + piece.count], piece.size)
        while in_flight:
            finish_oldest()
    finally:
        for lane, _ in in_flight:  # after an error or Ctrl-C: nobody may touch buffers that are still being copied
            with suppress(EngineError):
                lane.device.wait(lane.stream)
    return results


def compute_lanes(lanes: Sequence[Lane], windows: int, profile: BatchProfile) -> None:
    """The computation of `run_lanes` for this many windows, without any copy: for benchmarks."""
    pieces = list(cut(windows, profile))
    for first in range(0, len(pieces), len(lanes)):
        group = list(zip(lanes, pieces[first : first + len(lanes)], strict=False))  # the last may be shorter
        for lane, piece in group:
            lane.start_computation(piece.size)
        for lane, piece in group:
            lane.finish_computation(piece.size)


def _demand(accepted: bool, what: str) -> None:
    if not accepted:
        raise EngineError(f"TensorRT refused {what}")
