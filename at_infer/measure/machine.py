"""What doctor finds out about a machine: JSON values with names."""

from typing import NotRequired, TypedDict


class GpuDevice(TypedDict):
    """As the CUDA driver tells it."""

    name: str
    memory_gb: float
    compute_capability: str


class Tried(TypedDict):
    """What came of loading something in a process of its own; what else there is depends on what was loaded."""

    works: bool
    reason: str | None
    """Why not; None also if it is not installed."""
    version: NotRequired[str | None]
    difference: NotRequired[float]
    """The largest between its results and those of the CPU."""
    built: NotRequired[bool]
    ran: NotRequired[bool]
    """Of a plan: where there is no GPU, it is only built."""
    plan: NotRequired["Tried"]
    """Of a TensorRT that works: a small plan made with it."""
    providers: NotRequired[list[str]]
    devices: NotRequired[list[GpuDevice]]


class TriedCommand(Tried):
    """A command with options, and whether it will work."""

    command: str


class Python(TypedDict):
    """The interpreter."""

    version: str
    executable: str


class Cpu(TypedDict):
    """Model, cores and instructions."""

    model: str
    architecture: str
    cores: int | None
    usable_cores: int
    core_quota: float | None
    """Cores that a container may use at a time; None: all of them."""
    features: dict[str, bool] | None
    """None: unknown."""


class Gpus(TypedDict):
    """Devices that work, or the reason why there are none."""

    devices: list[GpuDevice]
    works: bool
    reason: str | None
    driver: str | None
    """Its version."""
    jetson: bool


class Extra(TypedDict):
    """An extra of at-infer."""

    installed: bool
    packages: dict[str, str | None]
    """Versions, None for those that are absent."""
    get: str
    """The command that installs it."""


class Machine(TypedDict):
    """What is there."""

    at_infer: str
    python: Python
    system: str
    cpu: Cpu
    memory_gb: float | None
    gpu: Gpus
    core: dict[str, Tried]
    """Packages that at-infer cannot do without."""
    runtime_packages: dict[str, str]
    """Those that bring ONNX Runtime, with their versions."""
    conflicts: list[str]
    providers: dict[str, Tried]
    tensorrt: dict[str, Tried]
    """By flavour."""
    extras: dict[str, Extra]


class Examined(Machine):
    """What is there, and what follows from it."""

    commands: list[TriedCommand]
    broken: str | None
    """What keeps at-infer from working at all."""
