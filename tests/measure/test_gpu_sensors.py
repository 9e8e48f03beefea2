"""Clocks, power and memory of a GPU: what NVML and tegrastats tell, on machines that have neither."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from at_infer.measure import gpu_sensors
from at_infer.measure.gpu_sensors import GpuWatch, Reading, open_nvml, parse_tegrastats, read_power_mode, summarise

ORIN = (
    "11-16-2026 08:00:00 RAM 3181/7620MB (lfb 4x4MB) SWAP 0/3810MB (cached 0MB) CPU [2%@729,0%@729,off,off] "
    "EMC_FREQ 1%@2133 GR3D_FREQ 97%@[1015] VIC_FREQ 729 cpu@49.5C gpu@48.2C VDD_IN 9871mW/5040mW "
    "VDD_CPU_GPU_CV 3210mW/1010mW VDD_SOC 1400mW/1400mW"
)
NANO = "RAM 1500/3964MB (lfb 2x1MB) GR3D_FREQ 0%@76 PLL@28C POM_5V_IN 1678/1678 POM_5V_GPU 40/40"


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        (ORIN, Reading(clock_mhz=1015.0, power_w=9.871, memory_mb=3181.0)),
        (NANO, Reading(clock_mhz=76.0, power_w=1.678, memory_mb=1500.0)),
        ("GR3D_FREQ 0%", Reading()),
        ("", Reading()),
    ],
)
def test_a_line_of_tegrastats_is_read(line, reading):
    assert parse_tegrastats(line) == reading


def test_readings_become_median_lowest_mean_and_largest():
    readings = [Reading(1000.0, 10.0, 5.0), Reading(400.0, None, 9.0), Reading(1100.0, 20.0, None)]
    facts = summarise(readings, "NVML", "MAXN")
    assert (facts.clock_mhz, facts.lowest_clock_mhz, facts.power_w, facts.memory_mb) == (1000.0, 400.0, 15.0, 9.0)
    assert str(facts) == ("power mode MAXN, 1000 MHz, at least 400 MHz, 15.0 W, 9 MB of memory in use (NVML)")


def test_a_device_that_tells_nothing_is_no_error():
    facts = summarise([Reading()], "tegrastats", None)
    assert str(facts) == "tells nothing (tegrastats)"
    assert facts.clock_mhz is None


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes):
    def unsupported(_handle):
        raise FakeNvmlError("Not Supported")

    return SimpleNamespace(**{
        "NVMLError": FakeNvmlError,
        "NVML_CLOCK_SM": 1,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetClockInfo": lambda _handle, _kind: 1800,
        "nvmlDeviceGetPowerUsage": unsupported,
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(used=2_000_000),
    } | changes)  # fmt: skip


def test_what_a_gpu_does_not_support_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert open_nvml()() == Reading(clock_mhz=1800.0, power_w=None, memory_mb=2.0)


def test_nvml_without_a_driver_says_so(monkeypatch):
    def fail():
        raise FakeNvmlError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=fail))
    watch = GpuWatch()
    with watch:
        pass
    assert watch.facts is None
    assert watch.reason == "NVML does not start (NVML Shared Library Not Found)"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError, match="pip install nvidia-ml-py"):
        open_nvml()


def test_the_fake_has_no_name_that_nvml_lacks():
    pynvml = pytest.importorskip("pynvml")
    assert [name for name in vars(fake_nvml()) if not hasattr(pynvml, name)] == []


def test_sensors_are_read_in_the_background_until_the_end(monkeypatch):
    read = []

    def one_more() -> Reading:
        read.append(threading.current_thread())
        return Reading(memory_mb=float(len(read)))

    monkeypatch.setattr(gpu_sensors, "INTERVAL_S", 0.001)
    monkeypatch.setattr(gpu_sensors, "open_nvml", lambda: one_more)
    with GpuWatch() as watch:
        while len(read) < 3:
            time.sleep(0.002)
    (reader,) = set(read)
    assert reader is not threading.main_thread()
    assert not reader.is_alive()
    assert watch.facts is not None
    assert watch.facts.memory_mb == len(read)  # the largest


def test_a_jetson_tells_its_power_mode(tmp_path, monkeypatch):
    for name, text in (("tegrastats", f"{ORIN}'; sleep '1"), ("nvpmodel", "NV Power Mode: MAXN_SUPER")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert read_power_mode() == "MAXN_SUPER"
    with GpuWatch() as watch:
        pass
    assert str(watch.facts).startswith("power mode MAXN_SUPER, 1015 MHz")
    assert str(watch.facts).endswith("(tegrastats)")


def test_elsewhere_there_is_no_power_mode(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_power_mode() is None


@pytest.mark.gpu
def test_a_real_gpu_tells_its_memory():
    with GpuWatch() as watch:
        time.sleep(0.5)
    assert watch.facts is not None, watch.reason
    assert watch.facts.memory_mb
