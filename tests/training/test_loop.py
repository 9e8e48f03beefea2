"""Training: repeatable, resumable, honest about its history and its scores."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer.config import PRESETS, WINDOW_MODES, DiscrepancyConfig, ModelConfig, ScoreConfig, TrainConfig
from at_infer.errors import CheckpointError, ConfigError, DataError
from at_infer.thresholds.quantiles import QUANTILE_LEVELS
from tests import oracle
from tests.conftest import MakeData
from training import loop
from training.checkpoint import Checkpoint, write_tensors
from training.data import TrainingData
from training.loop import Progress, fit
from training.model import AnomalyTransformer
from training.resume import StateFile
from training.task import TrainingTask

MODEL = ModelConfig(features=2, window=10, width=8, heads=2, layers=2, feed_forward=8)
TRAIN = replace(PRESETS["paper"].train, epochs=3, batch_size=4, learning_rate=1e-2)  # 24 windows: 6 steps an epoch
IN_STEPS = TrainConfig(max_steps=20, evaluate_every=6, batch_size=4, learning_rate=1e-2)  # cools down from step 16 on
SCORE = ScoreConfig()


@pytest.fixture
def data(make_data: MakeData) -> TrainingData:
    return make_data()


def task_of(data: TrainingData, train: TrainConfig, model: ModelConfig = MODEL, **where: str) -> TrainingTask:
    return TrainingTask(data=data, model=model, train=train, **where)


def trained(
    data: TrainingData,
    train: TrainConfig = TRAIN,
    score: ScoreConfig = SCORE,
    resume_path: Path | None = None,
    *,
    resume: bool = False,
    device: str = "cpu",
    **options: Any,
) -> Checkpoint:
    kept = None if resume_path is None else StateFile(resume_path, resume)
    return fit(task_of(data, train, device=device), score, kept=kept, **options)


_whole: dict[str, Checkpoint] = {}


def whole_run(data: TrainingData, train: TrainConfig = TRAIN) -> Checkpoint:
    """Of the rows that every test gets, without an interruption: trained once in a process, and not to be changed."""
    if repr(train) not in _whole:
        _whole[repr(train)] = trained(data, train)
    return _whole[repr(train)]


def same_weights(one: Checkpoint, other: Checkpoint) -> bool:
    assert one.state_dict.keys() == other.state_dict.keys()
    return all(torch.equal(one.state_dict[name], other.state_dict[name]) for name in one.state_dict)


def same_run(one: Checkpoint, other: Checkpoint) -> bool:
    """Weights, history and validation scores, bit for bit."""
    steps = [torch.equal(one.train["steps"][name], other.train["steps"][name]) for name in one.train["steps"]]
    rest = [one.train["evaluations"] == other.train["evaluations"], one.validation == other.validation]
    return same_weights(one, other) and all(steps) and all(rest)


def at_call(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something in the middle of the batch of this number, be it of training or of validation."""
    real, calls = loop.objective, 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return real(*args, **options)

    monkeypatch.setattr(loop, "objective", counted)


def crash() -> None:
    raise RuntimeError("power cut")


# Repeatable


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(data: TrainingData) -> None:
    one, same, other = (trained(data, replace(TRAIN, seed=seed)) for seed in (5, 5, 6))
    assert same_run(one, same)
    assert not same_weights(one, other)


def test_training_does_not_depend_on_what_was_drawn_before(data: TrainingData) -> None:
    one = trained(data)
    torch.rand(17)
    np.random.default_rng().random()
    assert same_run(one, trained(data))


@pytest.mark.slow
def test_training_learns_to_reconstruct(data: TrainingData) -> None:
    train = replace(TRAIN, epochs=20, patience=20)
    losses = [epoch["validation_reconstruction"] for epoch in trained(data, train).train["evaluations"]]
    assert min(losses) < 0.5 * losses[0]


# History


def test_history_has_every_step_and_the_means_of_every_epoch(data: TrainingData) -> None:
    history = trained(data).train
    steps = history["steps"]
    assert {name: len(losses) for name, losses in steps.items()} == {"reconstruction": 18, "discrepancy": 18}
    assert [epoch["step"] for epoch in history["evaluations"]] == [6, 12, 18]
    for i, epoch in enumerate(history["evaluations"]):
        for name in ("reconstruction", "discrepancy"):
            assert epoch[name] == pytest.approx(steps[name][6 * i : 6 * i + 6].mean().item())
    assert (history["config"], history["seed"]) == (TRAIN.to_dict(), 0)
    assert history["windows"] == {"train": 24, "validation": 6}
    assert history["rows"] == {"train": 240, "validation": 60}


def test_the_observer_hears_of_every_epoch(data: TrainingData) -> None:
    heard: list[Progress] = []
    checkpoint = trained(data, observe=heard.append)
    epochs = [at for at in heard if at.validation is not None]
    assert [(at.epoch, at.epochs, at.step, at.steps) for at in epochs] == [
        (1, 3, 6, 18),
        (2, 3, 12, 18),
        (3, 3, 18, 18),
    ]
    best = [at.step for at in epochs if at.best][-1]
    assert checkpoint.train["best_step"] == best
    assert all(at.windows_per_s > 0 for at in epochs)


def test_steps_are_shown_while_an_epoch_lasts(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(clock)))
    heard: list[Progress] = []
    checkpoint = trained(data, observe=heard.append)
    steps = [at for at in heard if at.validation is None]
    assert [at.step for at in steps] == list(range(1, 19))
    assert steps[7].reconstruction == pytest.approx(checkpoint.train["steps"]["reconstruction"][6:8].mean().item())


# When it ends


def test_training_in_steps_revisits_few_windows_evaluates_at_intervals_and_cools_down(data: TrainingData) -> None:
    history = trained(data, IN_STEPS).train
    assert len(history["steps"]["reconstruction"]) == 20  # more than three epochs
    assert [at["step"] for at in history["evaluations"]] == [6, 12, 16, 18, 20]
    assert history["ended"] == "budget"


def test_a_loss_that_falls_no_more_begins_the_cool_down(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 2.0, 1.99, 1.98, 1.5, 1.6])
    monkeypatch.setattr(loop._Run, "_validate", lambda _: {"reconstruction": next(losses), "discrepancy": 0.0})
    train = TrainConfig(max_steps=100, cool_down=0.05, evaluate_every=3, patience=2, batch_size=4)
    heard: list[Progress] = []
    history = trained(data, train, observe=heard.append).train
    assert [at["step"] for at in history["evaluations"]] == [3, 6, 9, 12, 15, 17]
    assert [at.steps for at in heard if at.validation] == [100, 100, 100, 17, 17, 17]
    assert (history["ended"], history["best_step"]) == ("plateau", 15)


def test_evaluations_that_are_steps_apart_see_some_windows_of_a_long_validation_part(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MOST_EVALUATED", 3)
    one = loop._Run(task_of(data, IN_STEPS), None)
    all_of_them = loop._Run(task_of(data, TRAIN), None)
    assert one.evaluated_starts.tolist() == data.validation.starts[[0, 2, 5]].tolist()
    assert all_of_them.evaluated_starts.tolist() == data.validation.starts.tolist()


def test_max_steps_ends_in_the_middle_of_an_epoch(data: TrainingData) -> None:
    short = trained(data, replace(TRAIN, max_steps=8))
    assert len(short.train["steps"]["reconstruction"]) == 8
    assert [epoch["step"] for epoch in short.train["evaluations"]] == [6, 8]
    assert len(trained(data, replace(TRAIN, max_steps=1000)).train["steps"]["reconstruction"]) == 18


@pytest.mark.slow
def test_early_stopping_keeps_the_weights_of_the_best_epoch(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_two = trained(data, replace(TRAIN, epochs=2))
    losses = iter([3.0, 2.0, 2.0, 4.0, 2.5, 1.0])
    monkeypatch.setattr(
        loop._Run, "_validate", lambda _: {"reconstruction": next(losses), "discrepancy": 0.0}, raising=True
    )
    stopped = trained(data, replace(TRAIN, epochs=10, patience=3))
    assert [epoch["validation_reconstruction"] for epoch in stopped.train["evaluations"]] == [3.0, 2.0, 2.0, 4.0, 2.5]
    assert (stopped.train["best_step"], stopped.train["ended"]) == (12, "plateau")
    assert (after_two.train["best_step"], after_two.train["ended"]) == (12, "budget")
    assert same_weights(stopped, after_two)


@pytest.mark.parametrize(("stride", "windows"), [(None, 24), (10, 24), (3, 77), (1, 231)])
@pytest.mark.slow
def test_the_stride_decides_how_many_windows_are_learnt(stride: int | None, windows: int, make_data: MakeData) -> None:
    train = replace(TRAIN, epochs=1, stride=stride)
    history = trained(make_data(stride=stride), train).train
    assert history["windows"] == {"train": windows, "validation": 6}
    assert len(history["steps"]["reconstruction"]) == -(-windows // TRAIN.batch_size)


def test_every_window_is_seen_once_in_an_epoch_in_another_order_each_time(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    real = loop._Run._step

    def noting(self: Any, starts: torch.Tensor) -> Any:
        seen.append(starts.tolist())
        return real(self, starts)

    monkeypatch.setattr(loop._Run, "_step", noting)
    trained(data, replace(TRAIN, epochs=2))
    first, second = ([start for batch in seen[i : i + 6] for start in batch] for i in (0, 6))
    assert sorted(first) == sorted(second) == data.train.starts.tolist()
    assert first != second


def test_the_network_sees_noise_and_is_compared_with_the_rows_themselves(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    compared: list[torch.Tensor] = []
    real_forward, real_objective = AnomalyTransformer.forward, loop.objective

    def forward(self: AnomalyTransformer, x: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            seen.append(x)
        return real_forward(self, x)

    def objective(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():
            compared.append(x)
        return real_objective(x, *args, **options)

    monkeypatch.setattr(AnomalyTransformer, "forward", forward)
    monkeypatch.setattr(loop, "objective", objective)
    trained(data, replace(IN_STEPS, noise=0.5))
    noise = torch.cat(seen) - torch.cat(compared)
    scales = noise.std(dim=(1, 2))
    assert abs(noise.mean()) < 0.03
    assert 0 < scales.min() < 0.1
    assert 0.4 < scales.max() < 0.8  # 20 values each
    assert abs(scales.mean() - 0.25) < 0.05
    rows = torch.from_numpy(data.train.values).unfold(0, 10, 1).transpose(1, 2)
    assert all((rows == window).all(dim=(1, 2)).any() for window in torch.cat(compared))


def test_the_paper_s_training_has_no_noise(data: TrainingData) -> None:
    assert TRAIN.noise == 0
    assert not same_weights(trained(data), trained(data, replace(TRAIN, noise=0.3)))


@pytest.mark.slow
def test_a_validation_file_is_used_for_validation(make_data: MakeData, waves: pl.DataFrame) -> None:
    own = make_data()
    other = replace_validation(own, make_data(waves * 3))
    assert trained(own).validation != trained(other).validation
    assert torch.equal(trained(own).train["steps"]["reconstruction"], trained(other).train["steps"]["reconstruction"])


def replace_validation(data: TrainingData, other: TrainingData) -> TrainingData:
    return replace(data, validation=other.validation)


# Scores


@pytest.mark.parametrize(
    "discrepancy",
    [DiscrepancyConfig(), DiscrepancyConfig(head_rule="published"), DiscrepancyConfig(layer=1)],
    ids=["paper", "published", "one layer"],
)
def test_validation_scores_of_every_mode_equal_a_recomputation(
    discrepancy: DiscrepancyConfig, make_data: MakeData, waves: pl.DataFrame
) -> None:
    data = make_data(waves[:283])  # 57 validation rows: the last window overlaps its predecessor
    assert data.validation.starts.tolist() == [226, 236, 246, 256, 266, 273]
    train = replace(TRAIN, discrepancy=discrepancy)
    score = ScoreConfig(mode="published", temperature=20.0)
    checkpoint = trained(data, train, score=score, ratio=0.1)

    network = checkpoint.network()
    usual = checkpoint.normal.discrepancy[discrepancy.head_rule]
    scores: dict[str, dict[int, float]] = {mode: {} for mode in WINDOW_MODES}
    for start in data.validation.starts:
        x = torch.from_numpy(data.validation.values[start : start + 10])
        with torch.inference_mode():
            x_hat, associations = network(x[None])
        error = ((x_hat[0] - x).double() ** 2).mean(-1).numpy()
        chosen = associations if discrepancy.layer is None else [associations[discrepancy.layer]]
        prior = np.stack([a.prior[0].double().numpy() for a in chosen])  # (L,H,N,N)
        series = np.stack([a.series[0].double().numpy() for a in chosen])
        mean_first = oracle.association_discrepancy(prior, series, floor=1e-8)
        per_head = (oracle.kl(prior, series, epsilon=1e-4) + oracle.kl(series, prior, epsilon=1e-4)).mean(axis=(0, 1))
        recorded = per_head if discrepancy.head_rule == "published" else mean_first
        of_window = {
            "paper": oracle.softmax(-mean_first) * error,
            "published": oracle.softmax(-20.0 * len(chosen) * per_head) * error,
            "reconstruction": error,
            "centred": (oracle.centred((x_hat[0] - x).double().numpy()) ** 2).mean(-1),
            "calibrated": oracle.calibrated_weight(recorded, *usual) * error,
            "discrepancy": oracle.softmax(-recorded),
            "addition": oracle.softmax(-recorded) + error,
        }
        for mode, values in of_window.items():
            for step, value in enumerate(values):
                scores[mode].setdefault(int(start) + step, value)

    assert checkpoint.quantile_levels == list(QUANTILE_LEVELS)
    assert set(checkpoint.validation_of().quantiles) == {*WINDOW_MODES, "fusion"}
    for mode, by_row in scores.items():
        assert sorted(by_row) == list(range(226, 283))
        expected = np.quantile(list(by_row.values()), QUANTILE_LEVELS)
        np.testing.assert_allclose(
            checkpoint.validation_of().quantiles[mode], expected, rtol=2e-3, atol=1e-6, err_msg=mode
        )
    descending = sorted(scores["published"].values(), reverse=True)
    threshold = checkpoint.validation_of().threshold
    assert threshold.value == pytest.approx(descending[5], rel=2e-3)  # 5 of 57 rows are at most 10 %
    assert (threshold.method, threshold.ratio, threshold.validation_rows) == ("ratio", 0.1, 57)


# Resume


@pytest.mark.parametrize(
    ("train", "call", "number"),
    [
        *((TRAIN, call, signal.SIGINT) for call in (1, 3, 6, 7, 8, 9, 20)),
        *((IN_STEPS, call, signal.SIGINT) for call in (4, 8, 22, 24, 26)),
        (TRAIN, 3, signal.SIGTERM),
        (IN_STEPS, 24, signal.SIGTERM),
    ],
)
@pytest.mark.slow
def test_a_run_interrupted_anywhere_ends_like_an_uninterrupted_one(
    train: TrainConfig,
    call: int,
    number: signal.Signals,
    data: TrainingData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches 1 to 6 are the first epoch's, 7 and 8 its validation; in steps, the cool-down begins with batch 23."""
    whole = whole_run(data, train)
    path = tmp_path / "x.resume.pt"
    with monkeypatch.context() as patch:
        at_call(call, lambda: os.kill(os.getpid(), number), patch)
        with pytest.raises(KeyboardInterrupt):
            trained(data, train, resume_path=path)
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix != ".parquet"] == ["x.resume.pt"]
    told: list[bool] = []
    assert same_run(whole, trained(data, train, resume_path=path, resume=True, begin=told.append))
    assert told == [True]


@pytest.mark.parametrize("call", [5, 8, 11, 21])
@pytest.mark.slow
def test_a_run_that_crashed_continues_from_the_state_kept_last(
    call: int, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = whole_run(data)
    path = tmp_path / "x.resume.pt"
    monkeypatch.setattr(loop, "SAVE_EVERY_S", -1.0)  # after every step
    with monkeypatch.context() as patch:
        at_call(call, crash, patch)
        with pytest.raises(RuntimeError, match="power cut"):
            trained(data, resume_path=path)
    assert same_run(whole, trained(data, resume_path=path, resume=True))


@pytest.mark.slow
def test_a_run_may_be_interrupted_again_and_again(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, path = whole_run(data), tmp_path / "x.resume.pt"
    for _ in range(4):
        with monkeypatch.context() as patch:
            at_call(4, lambda: os.kill(os.getpid(), signal.SIGINT), patch)
            with pytest.raises(KeyboardInterrupt):
                trained(data, resume_path=path, resume=True)
    assert same_run(whole, trained(data, resume_path=path, resume=True))


def test_a_finished_run_resumes_to_the_same_end(data: TrainingData, tmp_path: Path) -> None:
    path = tmp_path / "x.resume.pt"
    whole = trained(data, resume_path=path)
    heard: list[Progress] = []
    assert same_run(whole, trained(data, resume_path=path, resume=True, observe=heard.append))
    assert heard == []


@pytest.mark.slow
def test_resume_without_a_kept_state_starts_from_the_beginning(data: TrainingData, tmp_path: Path) -> None:
    told: list[bool] = []
    resumed = trained(data, resume_path=tmp_path / "x.resume.pt", resume=True, begin=told.append)
    assert same_run(resumed, trained(data))
    assert told == [False]


@pytest.mark.slow
def test_without_resume_a_kept_state_is_not_used(data: TrainingData, tmp_path: Path) -> None:
    path = tmp_path / "x.resume.pt"
    trained(data, replace(TRAIN, seed=9), resume_path=path)
    assert same_run(trained(data, resume_path=path), trained(data))


def test_resume_refuses_other_data_and_other_settings(
    data: TrainingData, make_data: MakeData, waves: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "x.resume.pt"
    trained(data, replace(TRAIN, max_steps=3), resume_path=path)
    kept = path.read_bytes()

    def refused(other_data: TrainingData = data, model: ModelConfig = MODEL, **changes: Any) -> str:
        task = task_of(other_data, replace(TRAIN, max_steps=3, **changes), model)
        with pytest.raises(CheckpointError) as error:
            fit(task, SCORE, kept=StateFile(path, resume=True))
        assert path.read_bytes() == kept
        return str(error.value)

    expected = f"{path}: belongs to a run with other {{}} settings; resume with the same options and data"
    assert refused(make_data(waves + 0.001)).startswith(expected.format("data"))
    assert refused(model=replace(MODEL, layers=1)).startswith(expected.format("model"))
    for change in ({"seed": 1}, {"learning_rate": 1e-3}, {"epochs": 4}, {"discrepancy": DiscrepancyConfig(layer=0)}):
        assert refused(**change).startswith(expected.format("train"))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert refused().startswith(expected.format("threads"))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_resume_refuses_what_is_not_the_state_of_a_run(data: TrainingData, tmp_path: Path) -> None:
    path = tmp_path / "x.resume.pt"
    trained(data, resume_path=path)
    state = torch.load(path, weights_only=True)
    trained(data).save(tmp_path / "ckpt.pt")

    def refused() -> str:
        with pytest.raises(CheckpointError) as error:
            trained(data, resume_path=path, resume=True)
        return str(error.value)

    path.write_bytes((tmp_path / "ckpt.pt").read_bytes())
    assert refused() == f"{path}: is not the state of an interrupted training; delete it and start again"
    write_tensors(path, {"identity": 5})
    assert "is not the state of an interrupted training" in refused()
    path.write_text("hello")
    assert refused() == f"{path}: is not a checkpoint, or is damaged"
    for part in ("state", "network", "best", "optimizer", "history"):
        write_tensors(path, {name: value for name, value in state.items() if name != part})
        assert refused() == f"{path}: is damaged or of another version; delete it and start again"
        write_tensors(path, state | {part: {"unexpected": 1}})
        assert refused() == f"{path}: is damaged or of another version; delete it and start again"


# Losses that are not numbers


def test_a_loss_that_is_not_finite_ends_training_and_leaves_nothing(data: TrainingData, tmp_path: Path) -> None:
    path = tmp_path / "x.resume.pt"
    with pytest.raises(DataError, match=r"the loss is not finite after step \d+; lower `learning_rate`"):
        trained(data, replace(TRAIN, lambda_=1e38, learning_rate=0.9), resume_path=path)
    assert not path.exists()


def test_a_loss_that_stops_being_finite_later_leaves_no_state_either(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.resume.pt"
    real = loop._Run._noisy

    def diverging(self: Any, x: torch.Tensor, noise: float) -> Any:
        return real(self, x * float("nan") if self.state.position.step == 13 else x, noise)

    monkeypatch.setattr(loop._Run, "_noisy", diverging)
    with pytest.raises(DataError, match=r"the loss is not finite after step 1[4-8]"):
        trained(data, resume_path=path)
    assert not path.exists()


def test_validation_rows_that_overflow_are_refused(make_data: MakeData, waves: pl.DataFrame) -> None:
    extreme = waves.with_columns(a=pl.when(pl.int_range(pl.len()) == 290).then(1e30).otherwise("a"))
    with pytest.raises(DataError, match="the validation loss is not finite after step 6"):
        trained(make_data(extreme))


# Settings that cannot work


def test_a_layer_that_does_not_exist_is_refused(data: TrainingData) -> None:
    with pytest.raises(ConfigError, match="layer: 2 does not exist"):
        trained(data, replace(TRAIN, discrepancy=DiscrepancyConfig(layer=2)))


def test_a_network_that_does_not_fit_into_memory_is_refused(data: TrainingData) -> None:
    with pytest.raises(ConfigError, match=r"out of memory; lower `batch_size` \(4\), `width` or `window`"):
        fit(task_of(data, TRAIN, replace(MODEL, width=2**20)), SCORE)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_on_cuda_learns_as_on_the_cpu(precision: Any, data: TrainingData) -> None:
    train = replace(TRAIN, epochs=10, precision=precision)
    epochs = trained(data, train, device="cuda").train["evaluations"]
    on_cpu = trained(data, replace(train, precision="fp32")).train["evaluations"]
    assert epochs[-1]["validation_reconstruction"] == pytest.approx(on_cpu[-1]["validation_reconstruction"], rel=0.2)


@pytest.mark.gpu
def test_a_compiled_network_learns_the_same(data: TrainingData) -> None:
    plain, compiled = (trained(data, replace(TRAIN, compile=c), device="cuda") for c in (False, True))
    for name, tensor in plain.state_dict.items():
        torch.testing.assert_close(compiled.state_dict[name], tensor, rtol=1e-3, atol=1e-4)
