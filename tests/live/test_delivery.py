"""Events of incidents on their way out: commands and webhooks that work, are slow, fail or are dead."""

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from at_infer.errors import ConfigError
from at_infer.incidents.incident import Cause, Incident
from at_infer.incidents.tracker import Event
from at_infer.live.delivery import Delivery, NotDeliveredError, Patience
from at_infer.live.notices import alertmanager_alerts, notice, sentence, slack_message
from at_infer.live.tally import Tally
from at_infer.live.ways import Command, Webhook
from tests.live.receiver import Receiver

QUICK = Patience(first_wait_s=0.01, longest_wait_s=0.02, close_s=600)


def event(kind: str = "opened", number: int = 0, **changes: Any) -> Event:
    values: dict[str, Any] = {
        "id": f"{number:012x}",
        "series": "pump 7",
        "state": "closed" if kind == "closed" else "open",
        "begin": "2026-03-01T10:00:00",
        "end": "2026-03-01T10:05:00",
        "peak": "2026-03-01T10:03:00",
        "begin_row": 100,
        "end_row": 105,
        "peak_row": 103,
        "peak_score": 5.0,
        "threshold": 2.0,
        "causes": (Cause("f01", 0.71, "level"), Cause("f02", 0.2, None)),
    }
    return Event(kind, Incident(**values | changes))


class Told(list[str]):
    """What was said, by any thread."""

    def wait(self, enough: Callable[[], bool]) -> None:
        end = time.monotonic() + 600
        while not enough():
            assert time.monotonic() < end
            time.sleep(0.005)


def delivery(way: Any, patience: Patience = QUICK) -> tuple[Delivery, Told, dict[str, int]]:
    told, tally = Told(), Tally()
    made = Delivery(way, tally, told.append, patience)

    class Counts(dict[str, int]):
        def __getitem__(self, result: str) -> int:
            return tally.notifications[way.kind, result]

    return made, told, Counts()


# What is told


def test_a_notice_is_the_event_and_the_incident_as_json():
    found = json.loads(json.dumps(notice(event("worse"))))
    assert (found["event"], found["id"], found["series"], found["ratio"]) == ("worse", "0" * 12, "pump 7", 2.5)
    assert found["causes"][0] == {"feature": "f01", "share": 0.71, "view": "level"}


def test_a_sentence_says_where_how_bad_since_when_and_why():
    begun = "2.50 times the threshold since 2026-03-01T10:00:00, f01 (level) 71% of the error, f02 20%"
    assert sentence(event()) == f"Incident {'0' * 12} on pump 7 opened: {begun}"
    ended = sentence(event("closed", series="", causes=(), peak_score=math.inf))
    span = "from 2026-03-01T10:00:00 to 2026-03-01T10:05:00 (6 rows)"
    assert ended == f"Incident {'0' * 12} is over: inf times the threshold {span}"


def test_a_sentence_about_a_missing_feature_has_no_score():
    opened = event(causes=(Cause("f01", 1.0),), peak_score=math.nan)
    begun = sentence(opened._replace(incident=replace(opened.incident, kind="missing feature")))
    assert begun == f"Incident {'0' * 12} on pump 7 opened: f01 has no value since 2026-03-01T10:00:00"


def test_slack_gets_a_text_without_its_control_characters():
    assert "on &lt;!here&gt; &amp; co opened" in slack_message(event(series="<!here> & co"))["text"]


def test_alertmanager_resolves_what_it_has_opened():
    (opened,), (worse,), (closed,) = (alertmanager_alerts(event(kind)) for kind in ("opened", "worse", "closed"))
    assert opened["labels"] == worse["labels"] == closed["labels"]
    assert opened["labels"] == {"alertname": "AtInferIncident", "incident": "0" * 12, "series": "pump 7"}
    assert opened["startsAt"] == closed["startsAt"] == "2026-03-01T10:00:00+00:00"
    now = datetime.now().astimezone()
    assert datetime.fromisoformat(closed["endsAt"]) <= now < datetime.fromisoformat(opened["endsAt"])
    for begin in (12, "0001-01-01T00:00:00+14:00"):  # a number; a time that has no date in UTC
        (at_once,) = alertmanager_alerts(event(begin=begin))
        assert datetime.fromisoformat(at_once["startsAt"]) >= now


# Webhooks


@pytest.mark.parametrize("form", ["json", "slack", "alertmanager"])
def test_a_webhook_gets_every_event_in_order(form):
    with Receiver() as receiver:
        made, told, counts = delivery(Webhook(receiver.url, form))
        for number in range(3):
            made.offer(event(number=number))
        made.close()
    kinds = {"json": dict, "slack": dict, "alertmanager": list}
    assert [type(one) for one in receiver.got] == [kinds[form]] * 3
    assert [f"{number:012x}" in json.dumps(one) for number, one in enumerate(receiver.got)] == [True] * 3
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert (told, counts["delivered"]) == ([], 3)


def test_an_answer_of_500_is_tried_again_until_it_works_and_said_once():
    with Receiver(500, 503, 429, 200) as receiver:
        made, told, counts = delivery(Webhook(receiver.url))
        made.offer(event(number=1))
        made.offer(event(number=2))
        made.close()
    assert [one["id"][-1] for one in receiver.got] == ["1", "1", "1", "1", "2"]
    assert told == [
        f"{receiver.name}: an event of an incident was not delivered (answer 500); trying again",
        f"{receiver.name}: delivers again",
    ]
    assert (counts["delivered"], counts["failed"]) == (2, 0)


@pytest.mark.parametrize("answer", [404, 302, 400])
def test_an_answer_that_no_attempt_will_change_is_not_tried_again(answer):
    with Receiver(answer) as receiver:
        made, told, counts = delivery(Webhook(receiver.url))
        made.offer(event(number=1))
        made.offer(event(number=2))
        made.close()
    assert len(receiver.got) == counts["failed"] == 2
    lost = f"an event of an incident was not delivered (answer {answer}); the event is lost"
    assert told == [f"{receiver.name}: {lost}"]


def test_a_slow_receiver_holds_up_neither_offers_nor_the_end():
    hold = threading.Event()
    with Receiver(hold=hold) as receiver:
        made, told, counts = delivery(Webhook(receiver.url), Patience(close_s=0.05))
        for number in range(5):
            made.offer(event(number=number))
        receiver.wait(lambda got: len(got) == 1)
        made.close()
        hold.set()
    assert told == [f"{receiver.name}: 5 events of incidents not delivered before the end"]
    assert counts["failed"] == 5


def test_a_receiver_that_never_answers_is_given_up_on_and_tried_again():
    hold = threading.Event()
    with Receiver(hold=hold) as receiver:
        made, told, _ = delivery(Webhook(receiver.url, timeout_s=0.05))
        made.offer(event())
        receiver.wait(lambda got: len(got) == 2)
        hold.set()
        made.close()
    assert told[0] == f"{receiver.name}: an event of an incident was not delivered (timed out); trying again"


def test_a_dead_receiver_loses_the_oldest_events_only_and_it_is_said_what_is_left():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    made, told, counts = delivery(Webhook(f"http://127.0.0.1:{port}/"), Patience(capacity=3, close_s=0.05))
    made.offer(event(number=0))
    told.wait(lambda: bool(told))  # it is being sent
    for number in range(1, 6):
        made.offer(event(number=number))
    assert [json.loads(body)["id"][-1] for _, body in made._waiting] == ["3", "4", "5"]
    made.close()
    name = f"webhook 127.0.0.1:{port}"
    assert told == [
        f"{name}: an event of an incident was not delivered (Connection refused); trying again",
        f"{name}: 3 events wait already; dropping the oldest of them",
        f"{name}: 4 events of incidents not delivered before the end",
    ]
    assert (counts["dropped"], counts["failed"]) == (2, 4)


def test_an_event_is_not_tried_for_ever():
    with Receiver(500) as receiver:
        made, _, counts = delivery(Webhook(receiver.url), Patience(first_wait_s=0.01, give_up_s=0.0, close_s=600))
        made.offer(event())
        made.close()
    assert (len(receiver.got), counts["failed"]) == (1, 1)


# At their first event these ended the thread that sends, or were tried again for an hour.
UNSENDABLE = [
    "http://h/é",
    "http://a..b/x",
    f"http://{'a' * 64}.org/",
    "http://h/a b",
    "http://h/a\nb",
    "http://h/\ud800",
]


@pytest.mark.parametrize(
    "url", ["example.com", "ftp://example.com/x", "http:///x", "http://[::1/", "http://h:port/", *UNSENDABLE]
)
def test_what_is_no_web_address_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigError, match=r"^webhook: is not a URL") as refused:
        Webhook(url)
    assert url not in str(refused.value)


def test_a_user_name_in_the_address_is_refused():
    with pytest.raises(ConfigError, match=r"use on_incident=\.\.\. with curl"):
        Webhook("https://me:secret@example.com/")


def test_only_the_host_of_a_webhook_is_ever_named():
    assert Webhook("https://hooks.example.com/services/T0/secret").name == "webhook hooks.example.com"


# Commands


def script(tmp_path: Path, text: str) -> str:
    """A command that runs some Python."""
    (tmp_path / "command.py").write_text(f"import os, sys, time\n{text}\n")
    return f"{sys.executable} {tmp_path / 'command.py'}"


def test_a_command_gets_one_line_of_json_on_its_standard_input(tmp_path):
    out = tmp_path / "out"
    command = script(tmp_path, f"open({str(out)!r}, 'a').write(sys.stdin.read())")
    made, told, counts = delivery(Command(command))
    for kind in ("opened", "closed"):
        made.offer(event(kind))
    made.close()
    assert [json.loads(line)["event"] for line in out.read_text().splitlines()] == ["opened", "closed"]
    assert (told, counts["delivered"]) == ([], 2)


@pytest.mark.parametrize(
    ("text", "timeout_s", "why"),
    [("sys.exit(7)", 600, "it ended with code 7"), ("time.sleep(600)", 0.2, "it took longer than 0.2 s")],
)
def test_a_command_that_fails_or_hangs_is_counted_and_said_once(tmp_path, text, timeout_s, why):
    made, told, counts = delivery(Command(script(tmp_path, text), timeout_s=timeout_s))
    for number in range(3):
        made.offer(event(number=number))
    made.close()
    lost = f"an event of an incident was not delivered ({why}); the event is lost"
    assert (told, counts["failed"]) == ([f"command {sys.executable}: {lost}"], 3)


def test_a_command_that_hangs_at_the_end_is_killed_with_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"
    text = f"child = os.fork()\nif child: open({str(pid)!r}, 'w').write(str(child))\ntime.sleep(600)"
    made, told, _ = delivery(Command(script(tmp_path, text)), Patience(close_s=0.05))
    made.offer(event())
    told.wait(lambda: pid.exists() and pid.read_text() != "")
    made.close()
    assert told == [f"command {sys.executable}: 1 event of incidents not delivered before the end"]
    state = Path(f"/proc/{pid.read_text()}/stat")
    told.wait(lambda: not state.exists() or state.read_text().split(") ")[1][0] == "Z")


def test_what_a_command_prints_does_not_go_between_the_rows(tmp_path, capfd):
    made, _, _ = delivery(Command(script(tmp_path, "print('hello')")))
    made.offer(event())
    made.close()
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("text", ["", "no-such-command-here", "echo 'half"])
def test_what_is_no_command_is_refused_at_the_start(text):
    with pytest.raises(ConfigError, match=r"^on_incident: .* is not a command"):
        Command(text)


def test_a_command_that_disappears_is_a_failure_and_no_crash(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    way = Command(str(tool))
    tool.unlink()
    with pytest.raises(NotDeliveredError, match="it cannot be run: No such file or directory"):
        way.send(b"{}")
