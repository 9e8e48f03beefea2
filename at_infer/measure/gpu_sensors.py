"""Clocks, power and memory of the GPU while it works: by NVML, on a Jetson by tegrastats and nvpmodel."""

import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Self

INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Reading:
    """At one moment; None for what the device does not tell."""

    clock_mhz: float | None = None
    power_w: float | None = None
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Over a whole measurement."""

    source: str
    power_mode: str | None
    """Of a Jetson, as nvpmodel names it."""
    clock_mhz: float | None
    """Median."""
    lowest_clock_mhz: float | None
    """Far below the median: the GPU was throttled, or not yet warm."""
    power_w: float | None
    """Mean."""
    memory_mb: float | None
    """Largest, of everything on the GPU; on a Jetson of the whole board."""

    def __str__(self) -> str:
        told = {
            "power mode {}": self.power_mode,
            "{:.0f} MHz": self.clock_mhz,
            "at least {:.0f} MHz": self.lowest_clock_mhz,
            "{:.1f} W": self.power_w,
            "{:.0f} MB of memory in use": self.memory_mb,
        }
        words = [text.format(value) for text, value in told.items() if value is not None]
        return f"{', '.join(words) or 'tells nothing'} ({self.source})"


class GpuWatch:
    """Reads the sensors in the background between `with` and its end; `facts` says what came of it.

    `facts` is None where nothing can be read, and `reason` says why.
    """

    def __init__(self) -> None:
        self.facts: GpuFacts | None = None
        self.reason: str | None = None
        self._readings: list[Reading] = []
        self._over = Event()
        self._source, self._read = self._open()

    def _open(self) -> tuple[str, Callable[[], Reading] | None]:
        if shutil.which("tegrastats"):
            return "tegrastats", read_tegrastats
        try:
            return "NVML", open_nvml()
        except (ImportError, RuntimeError) as error:
            self.reason = str(error)
            return "NVML", None

    def __enter__(self) -> Self:
        if self._read is not None:
            self._thread = Thread(target=self._watch, args=(self._read,), daemon=True)
            self._thread.start()
        return self

    def _watch(self, read: Callable[[], Reading]) -> None:
        while not self._over.wait(INTERVAL_S):
            self._readings.append(read())

    def __exit__(self, *_: object) -> None:
        if self._read is None:
            return
        self._over.set()
        self._thread.join()
        self._readings = self._readings or [self._read()]
        self.facts = summarise(self._readings, self._source, read_power_mode())


def summarise(readings: list[Reading], source: str, power_mode: str | None) -> GpuFacts:
    """Median and lowest clock, mean power, largest memory."""
    clocks = [r.clock_mhz for r in readings if r.clock_mhz is not None]
    powers = [r.power_w for r in readings if r.power_w is not None]
    memory = [r.memory_mb for r in readings if r.memory_mb is not None]
    return GpuFacts(
        source=source,
        power_mode=power_mode,
        clock_mhz=statistics.median(clocks) if clocks else None,
        lowest_clock_mhz=min(clocks, default=None),
        power_w=statistics.mean(powers) if powers else None,
        memory_mb=max(memory, default=None),
    )


def open_nvml() -> Callable[[], Reading]:
    """A function that reads the first GPU; RuntimeError if there is none to read."""
    try:
        import pynvml
    except ImportError:
        raise ImportError("clocks, power and memory need NVML; pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        raise RuntimeError(f"NVML does not start ({error})") from None

    def ask(question: Callable[[], float]) -> float | None:
        try:
            return float(question())
        except pynvml.NVMLError:  # not supported by this device
            return None

    def read() -> Reading:
        power_mw = ask(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        used = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        return Reading(
            clock_mhz=ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            power_w=None if power_mw is None else power_mw / 1e3,
            memory_mb=None if used is None else used / 1e6,
        )

    return read


def read_tegrastats() -> Reading:
    """One line of tegrastats, which prints until it is stopped."""
    with subprocess.Popen(["tegrastats", "--interval", "100"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            return parse_tegrastats(process.stdout.readline())
        finally:
            process.terminate()


def parse_tegrastats(line: str) -> Reading:
    """`RAM 3181/7620MB ... GR3D_FREQ 99%@[1015] ... VDD_IN 6500mW/6400mW`; older boards write no units or brackets."""
    clock = re.search(r"GR3D_FREQ \d+%@\[?(\d+)", line)
    power = re.search(r"(?:VDD_IN|POM_5V_IN|VIN_SYS_5V0) (\d+)(?:mW)?/", line)
    memory = re.search(r"\bRAM (\d+)/\d+MB", line)
    return Reading(
        clock_mhz=float(clock[1]) if clock else None,
        power_w=int(power[1]) / 1e3 if power else None,
        memory_mb=float(memory[1]) if memory else None,
    )


def read_power_mode() -> str | None:
    """What `nvpmodel -q` calls the mode of a Jetson; None elsewhere."""
    if not shutil.which("nvpmodel"):
        return None
    try:
        told = subprocess.run(["nvpmodel", "-q"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    mode = re.search(r"NV Power Mode: *(\S+)", told)
    return mode[1] if mode else None
