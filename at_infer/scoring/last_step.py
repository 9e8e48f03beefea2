"""The last step of scoring: from merged rows of what the engine says to scores, by the score mode."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from at_infer.config import ScoreConfig, split_delay
from at_infer.engines import Engine
from at_infer.models import fusion
from at_infer.models.criterion import view_statistics
from at_infer.models.fusion_together import Together
from at_infer.models.metadata import Metadata
from at_infer.models.views import LEVEL_STEP
from at_infer.scoring.missing import SETTLE
from at_infer.scoring.options import ScoreOptions
from at_infer.scoring.settings import Finisher, add_one_by_one
from at_infer.scoring.windows import Floats, MovingMean, WindowLayout

LAST_ROWS_BATCH = 64
"""Windows per batch if the engine `runs_last`: that is little work, and the last step likes many rows."""


class LastStep(TypedDict):
    """Of `RowSettings`: what depends on the score mode."""

    window_channels: int
    channels: int
    finish: Callable[[], Finisher]
    add_together: Callable[[Sequence[Any], Sequence[Floats]], list[Floats]]
    step_together: Callable[[Sequence[Any], Floats], Floats] | None
    reach: tuple[int, int]
    grid: int


def last_step(known: Metadata, config: ScoreConfig, options: ScoreOptions, delay: int) -> LastStep:
    """Views, smoothing and fusion, or a moving mean."""
    features, causal, mask = len(known.columns), options.align == "last", options.on_missing_feature == "mask"
    explain, onset = options.explain != "none", has_onset(known, config, options, delay)
    more = 2 * SETTLE if mask else 0
    if config.mode == "fusion":
        views = view_statistics(known)
        _, ahead = split_delay(known.model, config.mode, delay)
        together = Together()
        return LastStep(
            add_together=together.add,
            step_together=together.step,
            window_channels=(3 - needs_live_rows(known, config, options) + mask) * features,
            channels=1 + (2 * features if explain else 0) + onset,
            finish=lambda: fusion.Fusion(
                views, config, causal=causal, delay=ahead, explain=explain, onset=onset, mask=mask
            ),
            reach=(
                fusion.lookback(views.widths, config.level, onset=onset) + more,
                look_ahead(known, config, options, delay),
            ),
            grid=LEVEL_STEP,
        )
    channels, smooth = 1 + features if explain else 1, config.smooth  # the error of every feature
    return LastStep(
        add_together=add_one_by_one,
        step_together=None,
        window_channels=channels,
        channels=channels + onset,
        finish=lambda: MovingMean(smooth, causal=causal, onset=onset),
        reach=(smooth + more, 0 if causal else smooth),
        grid=1,
    )


def needs_live_rows(known: Metadata, config: ScoreConfig, options: ScoreOptions) -> bool:
    """Does the last step need no more of a window than the rows at its end?"""
    if config.mode != "fusion" or options.align != "last":
        return False
    return view_statistics(known).live_shape == "past"


def runs_last(
    engine: Engine, layout: WindowLayout, known: Metadata, config: ScoreConfig, options: ScoreOptions
) -> bool:
    """Is the last row of each window all that the engine reconstructs?"""
    return needs_live_rows(known, config, options) and layout.delay == 0 and engine.has_last


def look_ahead(known: Metadata, config: ScoreConfig, options: ScoreOptions, delay: int) -> int:
    """Rows behind a row that smoothing makes its score depend on."""
    causal = options.align == "last"
    if config.mode == "fusion":
        _, ahead = split_delay(known.model, config.mode, delay)
        return fusion.lookahead(view_statistics(known).widths, causal=causal, delay=ahead)
    return 0 if causal else (config.smooth - 1) // 2


def has_onset(known: Metadata, config: ScoreConfig, options: ScoreOptions, delay: int) -> bool:
    """Is the last channel of a scored row its score from the row and those before it?"""
    return options.explain != "none" and look_ahead(known, config, options, delay) > 0
