"""Messages about invalid lines."""

from at_infer.live.bad_lines import INTERVAL_S, SHOWN, BadLines


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_lines_of_a_minute_are_reported_and_the_others_counted() -> None:
    said: list[str] = []
    clock = Clock()
    bad = BadLines("stdin", said.append, clock)
    for line in range(1, 501):
        bad.add(line, "is not JSON")
        bad.report()
    assert said == [f"stdin: line {line}: is not JSON; the line is skipped" for line in range(1, SHOWN + 1)]
    said.clear()
    clock.now += INTERVAL_S
    bad.report()
    assert said == ["stdin: 480 more lines were skipped, the last one is line 500: is not JSON"]
    bad.add(501, "is too long")
    assert said[1:] == ["stdin: line 501: is too long; the line is skipped"]


def test_a_line_after_the_minute_reports_those_before_it_first() -> None:
    said: list[str] = []
    clock = Clock()
    bad = BadLines("rows.csv", said.append, clock)
    for line in range(SHOWN + 1):
        bad.add(line, "is not CSV")
    clock.now += INTERVAL_S
    bad.add(90, "is not UTF-8")
    assert said[SHOWN:] == [
        f"rows.csv: 1 more line was skipped, the last one is line {SHOWN}: is not CSV",
        "rows.csv: line 90: is not UTF-8; the line is skipped",
    ]


def test_at_the_end_all_are_accounted_for_once() -> None:
    said: list[str] = []
    bad = BadLines("stdin", said.append, Clock())
    bad.report(now=True)
    for line in range(SHOWN + 5):
        bad.add(line, "is not JSON")
    bad.report(now=True)
    bad.report(now=True)
    assert len(said) == SHOWN + 1
    assert said[-1].startswith("stdin: 5 more lines were skipped")
