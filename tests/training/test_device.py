"""The device that was asked for, or an error."""

import pytest
import torch

from at_infer.config import TrainConfig
from at_infer.errors import ConfigError
from training.device import check_device


def test_auto_is_the_best_device_there_is() -> None:
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert check_device("auto", TrainConfig()).type == expected
    assert check_device("cpu", TrainConfig()) == torch.device("cpu")


def test_a_device_that_is_not_there_is_refused_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: cuda is not available to this PyTorch"):
        check_device("cuda", TrainConfig())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("cuda:1", TrainConfig()) == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="device: cuda:2 does not exist; there are 2 CUDA devices"):
        check_device("cuda:2", TrainConfig())


@pytest.mark.parametrize("name", ["tpu", "", "cpu:x", "cpu:-1", "CPU"])
def test_names_that_are_no_devices_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"device: '.*' is not"):
        check_device(name, TrainConfig())


def test_half_precision_and_compilation_are_for_cuda() -> None:
    for config in (TrainConfig(precision="bf16"), TrainConfig(compile=True)):
        with pytest.raises(ConfigError, match="are for CUDA devices; on cpu use fp32 without"):
            check_device("cpu", config)
