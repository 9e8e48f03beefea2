"""The course of a training, without a network."""

from collections.abc import Iterable

import pytest

from at_infer.config import PRESETS, TrainConfig
from training.schedule import Schedule, TrainingPosition

TRAIN = TrainConfig(
    learning_rate=0.1, max_steps=100, warm_up=0.04, cool_down=0.2, evaluate_every=10, patience=3, tolerance=0.1
)


def run(config: TrainConfig, losses: Iterable[float], steps_per_epoch: int = 7) -> tuple[TrainingPosition, list[float]]:
    """The position at the end, and the learning rate of each step."""
    schedule, position, rates = Schedule(config, steps_per_epoch), TrainingPosition(), []
    for loss in losses:
        while position.step < schedule.next_evaluation(position):
            rates.append(schedule.learning_rate(position))
            position.step += 1
        schedule.evaluated(position, loss)
        position.evaluations.append({"step": position.step})
        if position.finished:
            break
    return position, rates


def evaluated(position: TrainingPosition) -> list[float]:
    return [at["step"] for at in position.evaluations]


def falling() -> Iterable[float]:
    return (0.5**i for i in range(1000))


def test_a_loss_that_keeps_falling_uses_the_whole_budget() -> None:
    position, rates = run(TRAIN, falling())
    assert evaluated(position) == list(range(10, 101, 10))
    assert (position.ended, position.cool_down_from, position.best_step) == ("budget", 80, 100)
    assert rates[:6] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])
    assert rates[79:82] == pytest.approx([0.1, 0.1, 0.095])
    assert rates[-1] == pytest.approx(0.1 / 20)


def test_a_loss_that_stops_falling_ends_training_after_a_cool_down() -> None:
    position, rates = run(TRAIN, [5.0, 4.0, 3.9, 3.8, 3.7, 3.6, 3.5])
    assert (position.ended, position.cool_down_from) == ("plateau", 50)
    assert evaluated(position) == [10, 20, 30, 40, 50, 60, 70]
    assert (position.best_loss, position.best_step) == (3.5, 70)  # the best weights are the best, by however little
    assert rates[50] == pytest.approx(0.1)
    assert rates[60] == pytest.approx(0.05)


def test_many_small_gains_are_a_gain() -> None:
    position, _ = run(TRAIN, (0.95**i for i in range(100)))
    assert position.ended == "budget"


def test_the_papers_schedule_is_a_fixed_rate_and_patience_in_epochs() -> None:
    position, rates = run(PRESETS["paper"].train, [5, 4, 3, 3, 3, 3, 1])
    assert evaluated(position) == [7, 14, 21, 28, 35, 42]
    assert set(rates) == {1e-4}
    assert (position.ended, position.best_step) == ("plateau", 21)
    position, rates = run(PRESETS["paper"].train, falling())
    assert (len(rates), position.ended) == (70, "budget")


@pytest.mark.parametrize("steps", [1, 2, 3, 9])
def test_a_tiny_budget_is_used_and_evaluated(steps: int) -> None:
    position, rates = run(TrainConfig(max_steps=steps), falling())
    assert len(rates) == evaluated(position)[-1] == steps


def test_the_smaller_of_two_budgets_holds() -> None:
    assert Schedule(TrainConfig(max_steps=30, epochs=2), 10).budget == 20
    assert Schedule(TrainConfig(max_steps=15, epochs=2), 10).budget == 15
    assert Schedule(TrainConfig(max_steps=None, epochs=2), 10).budget == 20
