"""fit(): from windows to a checkpoint, resumable at any step."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import DEFAULT_RATIO, ScoreConfig, Strategy
from at_infer.errors import DataError
from at_infer.interrupt import Interrupt
from training.checkpoint import Checkpoint
from training.data import TrainingData
from training.device import check_device, out_of_memory
from training.finish import finish
from training.lesson import Taught
from training.model import AnomalyTransformer
from training.objective import Objective, objective
from training.resume import StateFile, TrainingState
from training.schedule import Schedule
from training.task import TrainingTask

SAVE_EVERY_S = 60.0  # a killed run loses at most this much work
MOST_EVALUATED = 256  # windows, if evaluations are steps and not epochs apart: less than a tenth of the time


@dataclass(slots=True)
class Progress:
    """Where training is; handed to the observer after every step and, with validation losses, every evaluation."""

    epoch: int
    epochs: int | None
    """None if training is counted in steps."""
    step: int
    """Steps done."""
    steps: int
    """Steps to do, as far as is known: fewer once the validation loss has stopped falling."""
    windows_per_s: float
    reconstruction: float
    discrepancy: float
    validation: dict[str, float] | None = None
    best: bool = False


Observer = Callable[[Progress], None]


def fit(
    task: TrainingTask,
    score: ScoreConfig,
    *,
    ratio: float = DEFAULT_RATIO,
    kept: StateFile | None = None,
    begin: Callable[[bool], None] = lambda _resumed: None,
    observe: Observer = lambda _: None,
) -> Checkpoint:
    """Train, keep the weights of the best evaluation, and record their scores on the validation part.

    With `kept` the state is kept in a file while training runs. `begin` is told, before the first step, whether it is
    continued from there.
    """
    with out_of_memory(task.train.batch_size):
        run = _Run(task, None if kept is None else kept.path)
        resumed = kept is not None and kept.resume and kept.path.exists()
        if resumed:
            run.restore()
        begin(resumed)
        run.train(observe)
        return run.finish(score, ratio)


class _Part(NamedTuple):
    """Rows, and where windows start, on the device."""

    values: Tensor
    starts: Tensor


class _Run:
    """One training run: data on the device, and the state to resume from."""

    def __init__(self, task: TrainingTask, state_path: Path | None) -> None:
        data, model, config, parent, lesson = task.data, task.model, task.train, task.parent, task.lesson
        config.discrepancy.check_layers(model.layers)
        self.task, self.config, self.lesson, self.state_path = task, config, lesson, state_path
        self.device = check_device(task.device, config)
        torch.manual_seed(config.seed)
        network = AnomalyTransformer(model).to(self.device)
        if parent is not None:
            parent.check(model, data.columns)
            network.load_state_dict(parent.checkpoint.state_dict)
        self.forward, self.prior = torch.compile(network) if config.compile else network, model.prior
        learnt, validation = self._move(data)
        self.validation_values = validation.values
        self.learnt: _Part | Taught = learnt if lesson is None else lesson.train
        self.judged: _Part | Taught = validation if lesson is None else lesson.validation
        self.steps_per_epoch = -(-len(self.learnt.starts) // config.batch_size)
        self.schedule = Schedule(config, self.steps_per_epoch)
        self.state = TrainingState(
            network,
            torch.optim.Adam(network.parameters(), lr=config.learning_rate),
            torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16"),
            # Losses stay on the device until they are shown, so that a GPU is not made to wait.
            history=torch.zeros(self.schedule.budget, 2, device=self.device),
            best=_copy(network.state_dict()),
        )
        starts = self.judged.starts
        if config.evaluate_every is not None and len(starts) > MOST_EVALUATED:
            starts = starts[torch.linspace(0, len(starts) - 1, MOST_EVALUATED, device=self.device).long()]
        self.evaluated_starts = starts
        self.data_sha256 = data.fingerprint()
        self.window_steps = torch.arange(model.window, device=self.device)

    def _move(self, data: TrainingData) -> tuple[_Part, _Part]:
        """Data go to the device once; validation rows of the same file are not copied again."""

        def move(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        train, same = move(data.train.values), data.validation.values is data.train.values
        validation = train if same else move(data.validation.values)
        return _Part(train, move(data.train.starts)), _Part(validation, move(data.validation.starts))

    def train(self, observe: Observer) -> None:
        """Steps and evaluations until the schedule ends."""
        with Interrupt() as self.interrupt:
            self.saved = time.monotonic()
            while not self.state.position.finished:
                windows_per_s = self._steps(self.schedule.next_evaluation(self.state.position), observe)
                self._evaluate(observe, windows_per_s)

    def _steps(self, end: int, observe: Observer) -> float:
        """Go on to this step; windows per second."""
        state, position = self.state, self.state.position
        shown = began = time.monotonic()
        windows, epoch, order = 0, -1, torch.empty(0)
        while position.step < end:
            if epoch != position.step // self.steps_per_epoch:
                epoch = position.step // self.steps_per_epoch
                order = self._order(epoch)
            first = position.step % self.steps_per_epoch * self.config.batch_size
            batch = order[first : first + self.config.batch_size]
            for group in state.optimizer.param_groups:
                group["lr"] = self.schedule.learning_rate(position)
            losses = self._step(self.learnt.starts[batch])
            state.history[position.step, 0] = losses.reconstruction
            state.history[position.step, 1] = losses.discrepancy
            position.step += 1
            windows += len(batch)
            now = time.monotonic()
            if now - shown > 0.2:
                shown = now
                observe(self._progress(windows / (now - began)))
            if now - self.saved > SAVE_EVERY_S:
                self.save()
            self._stop_if_asked()
        return windows / max(time.monotonic() - began, 1e-9)

    def _order(self, epoch: int) -> Tensor:
        """Every training window once, in an order of its own for each epoch."""
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.learnt.starts))
        return torch.from_numpy(order).to(self.device)

    def _stop_if_asked(self) -> None:
        """Between two steps the state is whole: a resumed run ends like an uninterrupted one."""
        if self.interrupt.requested:
            self.save()
            raise KeyboardInterrupt

    def _step(self, starts: Tensor) -> Objective:
        losses = self._losses(self.learnt, starts, self.config.strategy, self.config.lambda_, noise=self.config.noise)
        state = self.state
        state.optimizer.zero_grad(set_to_none=True)
        state.scaler.scale(losses.loss).backward()
        state.scaler.step(state.optimizer)
        state.scaler.update()
        return losses

    def _noisy(self, x: Tensor, noise: float) -> Tensor:
        """What the network sees of training windows; the noise follows from the step, so that a run can be resumed."""
        if not noise:
            return x
        random = np.random.default_rng([self.config.seed, self.state.position.step, x.shape[-1]])
        scale = noise * random.random((len(x), 1, 1), np.float32)
        return x + torch.from_numpy(scale * random.standard_normal(x.shape, np.float32)).to(x)

    def _losses(
        self, of: _Part | Taught, starts: Tensor, strategy: Strategy, lambda_: float, noise: float = 0.0
    ) -> Objective:
        """Of windows, reconstructed from what is seen of them."""
        places = starts[:, None] + self.window_steps
        x = of.values[places]  # (B,N,F)
        with self._autocast():
            x_hat, associations = self.forward(self._noisy(x, noise))
        if self.lesson is not None and isinstance(of, Taught):
            return self.lesson.objective(of, places, x, x_hat, associations, self.prior)
        return objective(
            x,
            x_hat,
            associations,
            discrepancy=self.config.discrepancy,
            strategy=strategy,
            lambda_=lambda_,
            prior=self.prior,
        )

    def _evaluate(self, observe: Observer, windows_per_s: float) -> None:
        """Validate, keep the best weights, decide whether to continue."""
        state, position = self.state, self.state.position
        progress = self._progress(windows_per_s)
        progress.validation = self._validate()
        self._require_finite("validation loss", progress.validation.values())
        counted = ("reconstruction",) if self.lesson is None else ("reconstruction", "discrepancy")
        progress.best = self.schedule.evaluated(position, sum(progress.validation[name] for name in counted))
        progress.steps = self.schedule.end(position)
        if progress.best:
            state.best = _copy(state.network.state_dict())
        position.evaluations.append(
            {
                "step": position.step,
                "reconstruction": progress.reconstruction,
                "discrepancy": progress.discrepancy,
                "validation_reconstruction": progress.validation["reconstruction"],
                "validation_discrepancy": progress.validation["discrepancy"],
            }
        )
        self.save()
        observe(progress)

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        total = {"reconstruction": 0.0, "discrepancy": 0.0}
        for starts in self.evaluated_starts.split(self.config.batch_size):
            self._stop_if_asked()
            losses = self._losses(self.judged, starts, "reconstruction", 0.0)
            total["reconstruction"] += losses.reconstruction.item() * len(starts)
            total["discrepancy"] += losses.discrepancy.item() * len(starts)
        return {name: value / len(self.evaluated_starts) for name, value in total.items()}

    def _autocast(self) -> AbstractContextManager[object]:
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, {"bf16": torch.bfloat16, "fp16": torch.float16}[self.config.precision])

    def _progress(self, windows_per_s: float) -> Progress:
        """Losses are means since the last evaluation."""
        position = self.state.position
        mean = self.state.history[position.evaluated : position.step].mean(0).tolist()
        self._require_finite("loss", mean)
        return Progress(
            epoch=-(-position.step // self.steps_per_epoch),
            epochs=self.config.epochs,
            step=position.step,
            steps=self.schedule.end(position),
            windows_per_s=windows_per_s,
            reconstruction=mean[0],
            discrepancy=mean[1],
        )

    def _require_finite(self, what: str, values: Iterable[float]) -> None:
        if not np.isfinite(list(values)).all():
            if self.state_path is not None:
                self.state_path.unlink(missing_ok=True)  # a run that continues from it would end here again
            raise DataError(
                f"training: the {what} is not finite after step {self.state.position.step}; "
                f"lower `learning_rate` or look at the data for extreme values"
            )

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a resumed run to end like an uninterrupted one."""
        return {
            "model": self.state.network.config.to_dict(),
            "train": self.config.to_dict(),
            "data": self.data_sha256,
            "parent": self.task.parent_sha256,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else 0,
            "device": self.device.type,
        }

    def save(self) -> None:
        """Keep the state for `--resume`."""
        self.saved = time.monotonic()
        if self.state_path is not None:
            self.state.save(self.state_path, self._identity())

    def restore(self) -> None:
        """Continue from what `save` wrote, if it belongs to this very run."""
        assert self.state_path is not None
        self.state.restore(self.state_path, self._identity())

    def finish(self, score: ScoreConfig, ratio: float) -> Checkpoint:
        """A checkpoint of the best weights."""
        return finish(
            self.state,
            self.task,
            self.validation_values,
            score,
            ratio=ratio,
            device=self.device,
            data_sha256=self.data_sha256,
        )


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}
