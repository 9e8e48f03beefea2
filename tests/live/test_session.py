"""What a loop runs on is opened in order, and closed whether or not the loop could be opened."""

import io
from pathlib import Path

import pytest

from at_infer.errors import AtInferError, ConfigError
from at_infer.live.options import WatchOptions
from at_infer.live.scorer import StreamScorer
from at_infer.live.session import open_watch
from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions
from tests.scored import rows


@pytest.fixture
def closed(monkeypatch):
    """Streams that were closed."""
    found: list[StreamScorer] = []
    close = StreamScorer.close
    monkeypatch.setattr(StreamScorer, "close", lambda self: (found.append(self), close(self))[1])
    return found


def opened(models: Path, stdin=None, said=None, **options):
    stdout = io.TextIOWrapper(io.BytesIO())
    score_options = ScoreOptions(align="last", threshold=3.0)
    given = (WatchOptions(**options), score_options, InputOptions(), EngineOptions(threads=1))
    say = print if said is None else said.append
    return open_watch(models / "model.onnx", *given, stdin=stdin, stdout=stdout, say=say)


def test_a_loop_runs_on_what_was_asked_for(models, tmp_path, closed):
    (tmp_path / "in").write_text(rows(20).write_ndjson())
    said: list[str] = []
    with (tmp_path / "in").open() as stdin, opened(models, stdin, said, metrics=":0", only="incidents") as loop:
        assert said[-1].startswith("metrics: http://127.0.0.1:")
        assert loop.incidents is not None
        assert loop.grid is None
        loop.request_reload()
        loop.run(lambda: False)
        assert (loop.tally.rows, loop.tally.reloads["done"]) == (20, 1)
        assert loop.stream not in closed
    assert closed[-1] is loop.stream  # the second one
    assert len(set(closed)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "stdin: is closed; pipe rows into it, or pass `follow`"),
        ({"follow": Path("absent")}, "absent: no such file"),
        ({"state": Path()}, ".: is a folder"),
        ({"webhook": "ftp://host"}, "webhook: is not a URL of a web server"),
    ],
)
def test_what_was_opened_is_closed_if_the_rest_cannot_be(models, tmp_path, monkeypatch, closed, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AtInferError) as error, opened(models, **options):
        raise AssertionError
    assert str(error.value).startswith(message)
    assert len(closed) == 1


@pytest.mark.parametrize("options", [{"from_end": True}, {"state_interval_s": float("nan")}, {"only": "none"}])
def test_options_are_checked_before_anything_is_opened(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        WatchOptions(**options)
