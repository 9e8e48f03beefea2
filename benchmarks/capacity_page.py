"""docs/capacity.md, made from benchmarks/arithmetic.py, the devices of benchmarks/capacity.py and kept results."""

import math
from typing import Any

from at_infer.config import ModelConfig
from benchmarks.arithmetic import (
    PRECISIONS,
    Precision,
    int8_operations,
    moved_bytes,
    other_operations,
    product_operations,
)
from benchmarks.capacity import BATCH, CPU_BATCH, CPU_PRECISIONS, DEVICES, PAPER, cpu_device, predict

SERIES = 1_000_000
DEFAULT = ModelConfig(features=PAPER.features)

PAGE = """<!-- Written by python -m benchmarks.capacity --write docs/capacity.md benchmarks/results/capacity.json -->

# Predicted capacity

Predicted scoring speed of devices. **Every GPU figure on this page is a prediction. None was measured**,
because nothing has been run on a GPU yet. `benchmarks/edge.sh` measures a device: [how to](edge.md#measure-a-device).

Unless stated otherwise, the model has the paper's size: windows of {window} rows, {features} features, {width} wide,
{heads} heads, {layers} layers. [The default model](#the-default-model) is much smaller.

## Cost of a window

A multiplication and an addition are two operations. Matrix products are counted exactly, from their shapes
(`benchmarks/arithmetic.py`). Everything else (softmax, prior, logarithms, norms) is counted per element, an
exponential as 20 operations. Bytes: every product reads its operands and writes its result once; weights are read
once per batch of {batch}.

{needs}

In int8 the projections and the feed-forward part are integer products with one byte per element; attention,
embedding and the rest stay in float.

## Peak performance of devices

Peaks without sparsity, from the vendor's public figures. fp16: tensor cores with fp32 accumulation; fp32: CUDA cores.

{devices}

## Predicted

A roofline model: the time is the larger of operations / peak and bytes / bandwidth. Real engines stay below the
first limit. They can exceed the second, because activations that fit into the cache are not written to memory.

{predicted}

## Accuracy of the prediction

The same prediction for a CPU, compared with a measurement ({cpu}, threads: {threads}, batch {cpu_batch}, CPU time).
The peaks were measured with matrix products of the model's shapes, in turns with the model itself
(`python -m benchmarks.capacity`): {fp32_gflops:.0f} GFLOP/s in fp32, {int8_gops:.0f} in int8, {gb_per_s:.0f} GB/s.

{checked}

Consider this the best case. A GPU has more units to occupy with the same small products, and reaches less of its
peak at small batches.

## One million series at 1 Hz

Every series has one row per second. With windows that do not overlap (`at-infer score`), that is one window per
{window} rows, {calm:,} windows per second. If each row is scored as the last row of its window (`at-infer watch`), it
is {live:,}. Number of devices needed in fp16, at the predicted speed and at {share:.0%} of it, the fraction that fp32
reached on the CPU:

{million}

Reading, windowing and writing are not included: `python -m benchmarks.throughput` measures them.

## The default model

The default is {small_width} wide and has {small_layers} layer: {small_operations:.4f} x 10⁹ operations in
the matrix products of a window, 1/{smaller:.0f} of the paper's size. The rest (reading, views, smoothing, writing) is
then a large part of the time, so a roofline of the network predicts little. Measured with {cpus} CPUs, everything
included (`python -m benchmarks.default_speed`):

{default}

## How cost grows

![Time per row over window, width, features and layers, measured and by operation count](img/cost_growth.svg)

CPU time per row on the same CPU, changing one size at a time (`python -m benchmarks.cost_growth`). An exponent of 1
means that doubling the size doubles the time per row. Per window, the exponent of the window length is larger by 1.

{growth}

The measured exponents exceed the operation counts by at most {excess:.2f}. Operation counts assume that all operations
take the same time. On a CPU an exponential takes longer, which matters for long windows, and small products are less
efficient, which matters for narrow models.
"""


def page(measured: dict[str, Any], growth: dict[str, Any], default: dict[str, Any]) -> str:
    """The whole document."""
    share = cpu_share(measured, "fp32", "fp32")
    return PAGE.format(
        window=PAPER.window,
        features=PAPER.features,
        width=PAPER.width,
        heads=PAPER.heads,
        layers=PAPER.layers,
        batch=BATCH,
        cpu_batch=CPU_BATCH,
        needs=needs(),
        devices=devices(),
        predicted=predicted(),
        checked=checked(measured),
        million=million(share),
        share=share,
        calm=SERIES // PAPER.window,
        live=SERIES,
        growth=growth_table(growth),
        small_width=DEFAULT.width,
        small_layers=DEFAULT.layers,
        small_operations=product_operations(DEFAULT) / 1e9,
        smaller=product_operations(PAPER) / product_operations(DEFAULT),
        cpus=default["cpus"],
        default=default_table(default["results"]["this"]),
        excess=max(axis["exponent"] - axis["predicted_exponent"] for axis in growth["axes"]),
        **{key: measured[key] for key in ("cpu", "threads", "fp32_gflops", "int8_gops", "gb_per_s")},
    )


def default_table(rates: dict[str, float]) -> str:
    """Rows per second of the default model, and machines like this one for a million series."""
    titles = {
        "whole windows, from file to file": "file_rows_per_s",
        "every row as it comes, interleaved series": "many_rows_per_s",
        "every row as it comes, one series": "live_rows_per_s",
    }
    rows = [
        [title, f"{rates[key]:,.0f}", "" if key == "live_rows_per_s" else f"{math.ceil(SERIES / rates[key])}"]
        for title, key in titles.items()
    ]
    return table(["", "rows/s, measured", "such machines for a million series at 1 Hz"], rows)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def needs() -> str:
    """Operations and bytes per window, by precision."""
    rows = []
    for precision in PRECISIONS:
        low = int8_operations(PAPER) if precision == "int8" else product_operations(PAPER)
        rest = product_operations(PAPER) - low + other_operations(PAPER)
        moved = moved_bytes(PAPER, precision, BATCH)
        rows.append(
            [precision, f"{low / 1e9:.3f}", f"{rest / 1e9:.3f}", f"{moved / 1e6:.1f}", f"{(low + rest) / moved:.0f}"]
        )
    header = [
        "precision",
        "10⁹ operations in that precision",
        "10⁹ operations in fp32",
        "MB moved",
        "operations per byte",
    ]
    return table(header, rows)


def devices() -> str:
    """Peaks and where they come from."""
    rows = [
        [d.name, f"{d.fp32:g}", f"{d.fp16:g}", f"{d.int8:g}", f"{d.gb_per_s:g}", f"{d.watts}", d.source]
        for d in DEVICES
    ]
    return table(["device", "fp32 TFLOP/s", "fp16 TFLOP/s", "int8 TOP/s", "GB/s", "W", "source"], rows)


def predicted() -> str:
    """Windows per second of every device in every precision, with the limit that sets it."""
    rows = []
    for device in DEVICES:
        found = [predict(device, precision) for precision in PRECISIONS]
        rows.append([device.name, *(f"{p.windows_per_s:,.0f} ({p.limit})" for p in found)])
    return table(["device: windows/s, predicted", *PRECISIONS], rows)


def cpu_share(measured: dict[str, Any], precision: Precision, key: str) -> float:
    """Measured by predicted."""
    expected = predict(cpu_device(measured), precision, batch=CPU_BATCH).windows_per_s
    return float(measured["windows_per_s"][key] / expected)


def checked(measured: dict[str, Any]) -> str:
    """The CPU's prediction beside what was measured."""
    rows = []
    for precision, key in CPU_PRECISIONS:
        expected = predict(cpu_device(measured), precision, batch=CPU_BATCH)
        found = measured["windows_per_s"][key]
        share = cpu_share(measured, precision, key)
        rows.append([key, f"{expected.windows_per_s:.0f} ({expected.limit})", f"{found:.0f}", f"{share:.0%}"])
    return table(["CPU: windows/s", "predicted", "measured", "measured / predicted"], rows)


def million(share: float) -> str:
    """Devices for a million series, at the predicted speed and at a share of it."""
    rows = []
    for device in DEVICES:
        speed = predict(device, "fp16").windows_per_s
        counts = [
            math.ceil(demand / (speed * part)) for demand in (SERIES / PAPER.window, SERIES) for part in (1.0, share)
        ]
        rows.append([device.name, *(f"{count:,}" for count in counts)])
    header = [
        "devices, predicted",
        "no overlap",
        "no overlap, at the fraction",
        "every row",
        "every row, at the fraction",
    ]
    return table(header, rows)


def growth_table(growth: dict[str, Any]) -> str:
    """Times per row and both exponents, one line per size."""
    rows = []
    for axis in growth["axes"]:
        times = ", ".join(
            f"{size}: {micros:.0f}" for size, micros in zip(axis["sizes"], axis["us_per_row"], strict=True)
        )
        rows.append([axis["axis"], times, f"{axis['exponent']:.2f}", f"{axis['predicted_exponent']:.2f}"])
    return table(["size", "µs per row", "exponent, measured", "exponent, operation count"], rows)
