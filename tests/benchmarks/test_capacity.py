"""The model on paper: counted operations against torch's own counter, and the document against what generates it."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from at_infer.config import ModelConfig
from at_infer.engines import open_engine
from benchmarks.arithmetic import PRECISIONS, int8_operations, moved_bytes, product_operations, products
from benchmarks.capacity import DEVICES, PAPER, Device, Prediction, predict
from benchmarks.capacity_page import page
from benchmarks.cost_growth import SIZES, evaluate, exponent, exported, operations_per_row, shape
from benchmarks.cost_growth_figure import draw
from training.model import AnomalyTransformer

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SMALL = [
    ModelConfig(features=3, window=10, width=16, heads=4, layers=2, feed_forward=24),
    ModelConfig(features=1, window=7, width=8, heads=1, layers=1, feed_forward=8),
    ModelConfig(features=5, window=20, width=12, heads=3, layers=3, feed_forward=12),
]


@pytest.mark.parametrize("model", SMALL, ids=str)
def test_products_are_those_that_torch_counts(model):
    network = AnomalyTransformer(model).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.randn(1, model.window, model.features))
    assert product_operations(model) == counter.get_total_flops()


@pytest.mark.parametrize("model", SMALL, ids=str)
def test_weights_are_those_of_the_network(model):
    matrices = [weight for weight in AnomalyTransformer(model).parameters() if weight.dim() == 2]
    assert sum(product.weights for product in products(model)) == sum(weight.numel() for weight in matrices)


def test_bytes_fall_with_the_precision_and_with_the_batch():
    fp32, fp16, bf16, int8 = (moved_bytes(PAPER, precision, 32) for precision in PRECISIONS)
    assert fp16 == bf16 == fp32 / 2
    assert int8 < fp32
    weights = sum(product.weights for product in products(PAPER))
    assert moved_bytes(PAPER, "fp32", 1) - moved_bytes(PAPER, "fp32", 2) == 4 * weights / 2


def test_a_prediction_is_the_lower_limit():
    assert (Prediction(3.0, 5.0).windows_per_s, Prediction(3.0, 5.0).limit) == (3.0, "operations")
    assert (Prediction(5.0, 3.0).windows_per_s, Prediction(5.0, 3.0).limit) == (3.0, "memory")


def test_a_roofline_follows_from_the_peaks():
    device = Device("slow memory", fp32=1.0, fp16=2.0, int8=4.0, gb_per_s=1e-3, watts=1, source="")
    assert predict(device, "fp32").windows_per_s == pytest.approx(1e6 / moved_bytes(PAPER, "fp32", 32))
    device = Device("endless memory", fp32=1.0, fp16=1e9, int8=1e9, gb_per_s=1e12, watts=1, source="")
    in_float = product_operations(PAPER) - int8_operations(PAPER)
    assert 1e12 / predict(device, "int8").windows_per_s - 1e12 / predict(device, "fp16").windows_per_s == pytest.approx(
        in_float, rel=1e-3
    )
    assert predict(DEVICES[-1], "fp16").windows_per_s > predict(DEVICES[0], "fp16").windows_per_s


def test_an_exponent_is_found():
    assert exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)


def test_cost_as_the_arithmetic_says_is_as_predicted_and_a_window_squared_is_not():
    models = {shape(axis, size) for axis, sizes in SIZES.items() for size in sizes}
    axes = evaluate({model: 1e-12 * operations_per_row(model) for model in models})
    assert all(entry["as_predicted"] for entry in axes)
    assert all(entry["exponent"] == pytest.approx(entry["predicted_exponent"], abs=0.002) for entry in axes)
    axes = evaluate({model: 1e-9 * model.window**2 for model in models})
    assert [entry["axis"] for entry in axes if not entry["as_predicted"]] == ["window"]


@pytest.mark.parametrize("precision", ["fp32", "int8-dynamic"])
def test_a_model_whose_cost_is_measured_can_be_opened(precision, tmp_path):
    tiny = ModelConfig(features=2, window=20, width=8, heads=2, layers=1, feed_forward=8)
    engine = open_engine(exported(tiny, tmp_path, precision), threads=1)
    assert engine.run(np.ones((3, 20, 2), np.float32))["score"].shape == (3, 20)


def test_the_document_is_what_its_results_generate():
    names = ("capacity.json", "cost_growth.json", "default_speed.json")
    expected = page(*(json.loads((RESULTS / name).read_text(encoding="utf-8")) for name in names))
    assert (ROOT / "docs" / "capacity.md").read_text(encoding="utf-8") == expected
    assert "Every GPU figure on this page is a prediction" in expected


def test_the_picture_is_what_its_results_draw():
    result = json.loads((RESULTS / "cost_growth.json").read_text(encoding="utf-8"))
    picture = (ROOT / "docs" / "img" / "cost_growth.svg").read_text(encoding="utf-8")
    assert picture == draw(result)
    assert ElementTree.fromstring(picture).tag.endswith("svg")
