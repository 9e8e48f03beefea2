"""Where training runs, with how many threads, and how the CPU treats denormal floats."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from at_infer.config import TrainConfig
from at_infer.errors import ConfigError


def check_device(name: str, config: TrainConfig) -> torch.device:
    """The device that was asked for, or an error; never another one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if available[device])
    kind = name.split(":")[0]
    if kind not in available:
        raise ConfigError(f"device: {name!r} is not one of auto, cpu, cuda, mps")
    if not available[kind]:
        raise ConfigError(f"device: {name} is not available to this PyTorch; pass device='cpu' or fix the driver")
    if kind != "cuda" and (config.precision != "fp32" or config.compile):
        raise ConfigError(f"device: {config.precision} and `compile` are for CUDA devices; on {name} use fp32 without")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: {name!r} is not a device; a number may follow, as in cuda:1") from None
    if kind == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device: {name} does not exist; there are {torch.cuda.device_count()} CUDA devices")
    return device


def flush_denormals() -> None:
    """Let tiny floats count as zero: the prior and its gradients are full of them, and CPUs slow down on them.

    Worker threads inherit the setting from the thread that starts them, so call it before the first operation.
    """
    torch.set_flush_denormal(True)


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """While this is open, so many CPU threads (None: as it is) compute without denormals; then all is as before."""
    before = torch.get_num_threads()
    flush_denormals()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


@contextmanager
def out_of_memory(batch_size: int) -> Iterator[None]:
    """A network or batch that does not fit is the user's choice."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise ConfigError(
                f"training: out of memory; lower `batch_size` ({batch_size}), `width` or `window`"
            ) from None
        raise
