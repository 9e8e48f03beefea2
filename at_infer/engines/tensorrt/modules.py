"""TensorRT in its two flavours: which is installed, and the one logger that each allows per process."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from at_infer.errors import MissingExtraError
from at_infer.installed import install_extra
from at_infer.models.kinds import TITLES, Flavour

# The wheels of TensorRT-RTX install its bindings under the second name; only its meta package adds the first.
MODULES: dict[Flavour, tuple[str, ...]] = {
    "tensorrt": ("tensorrt",),
    "rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}


def load_flavour(flavour: Flavour) -> Any | None:
    """The Python module of this flavour, or None if it is not installed."""
    for name in MODULES[flavour]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name == name:
                continue
            raise _broken(flavour, error) from None
        except (ImportError, OSError, RuntimeError) as error:  # its shared libraries, or the CUDA they link
            raise _broken(flavour, error) from None
    return None


def install_hint(flavour: Flavour) -> str:
    """How to get this flavour."""
    return install_extra(flavour)


def _broken(flavour: Flavour, error: Exception) -> MissingExtraError:
    return MissingExtraError(
        f"{TITLES[flavour]}: is installed but does not load ({error}); reinstall it with {install_hint(flavour)}"
    )


class Message(NamedTuple):
    """One line of TensorRT's log."""

    severity: str
    text: str


@cache
def shared_logger(trt: Any) -> Any:
    """TensorRT keeps the first logger it sees for the life of the process, so builder and runtime share one."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        """Hands every message to whoever is recording; prints nothing."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 wants the call spelt out
            self.sinks: list[list[Message]] = []

        def log(self, severity: Any, msg: str) -> None:
            for sink in self.sinks:
                sink.append(Message(severity.name, msg))

    return Logger()


@contextmanager
def recorded(trt: Any) -> Iterator[list[Message]]:
    """Collect what TensorRT says while the block runs: it reports errors in no other way."""
    logger = shared_logger(trt)
    sink: list[Message] = []
    logger.sinks = [*logger.sinks, sink]
    try:
        yield sink
    finally:
        logger.sinks = [other for other in logger.sinks if other is not sink]


def complaints(messages: Sequence[Message]) -> str:
    """The errors among the messages as one line; empty if there are none."""
    errors = (" ".join(text.split()) for severity, text in messages if severity in ("ERROR", "INTERNAL_ERROR"))
    return "; ".join(dict.fromkeys(errors))
