"""Metrics of a stream: OpenMetrics text that its own parser reads, served without holding up scoring."""

import json
import re
import socket
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from at_infer import ScoreOptions, StreamScorer
from at_infer.errors import ConfigError
from at_infer.live.metrics import CONTENT_TYPE, MOST_LABELS, Metrics
from at_infer.live.metrics_server import MOST_CLIENTS, MetricsServer, parse_address
from at_infer.live.tally import Tally
from tests.first_column import FirstColumn, N, rows_of
from tests.live.test_watch import Live, json_lines, live, table  # noqa: F401 - fixtures
from tests.scored import rows

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """By name and labels, as the reference parser understands them."""
    families = list(text_string_to_metric_families(text))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def of_series(found: Samples) -> dict[str, float]:
    ratios = {dict(labels)["series"]: v for (name, labels), v in found.items() if name.endswith("score_over_threshold")}
    return dict(sorted(ratios.items()))


def observed(names: list[str], *, threshold: float = 2.0, max_series: int = 10_000) -> tuple[Metrics, StreamScorer]:
    """Metrics after a full window of each series, whose last scores are 0, 1, 2, ..."""
    stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=threshold), max_series=max_series)
    metrics = Metrics(Tally(), stream)
    for _ in range(N):
        pushed = stream.push_many(rows_of(range(len(names))), names, tags=[(i, name) for i, name in enumerate(names)])
        metrics.answer(stream, pushed, by_series=True, latency_s=0.003)
    return metrics, stream


def test_the_text_is_read_by_the_parser_of_the_format():
    metrics, _ = observed(["pump", 'a "b"\\c\nd', "ü", "\ud800"])
    metrics.tally.rows, metrics.tally.bad_lines = 7, 2
    metrics.tally.notifications[("webhook", "failed")] = 3
    found = samples(metrics.text().encode(errors="replace").decode())
    assert of_series(found) == {"pump": 0.0, 'a "b"\\c\nd': 0.5, "ü": 1.0, "?": 1.5}
    assert found["at_infer_rows_total", ()] == 7
    assert found["at_infer_bad_lines_total", ()] == 2
    assert found["at_infer_threshold", ()] == 2.0
    assert found["at_infer_notifications_total", (("result", "failed"), ("way", "webhook"))] == 3
    assert found["at_infer_latency_seconds_count", ()] == N
    assert found["at_infer_latency_seconds_bucket", (("le", "0.0025"),)] == 0
    assert found["at_infer_latency_seconds_bucket", (("le", "0.005"),)] == N
    assert found["at_infer_last_row_age_seconds", ()] >= 0
    info = next(dict(labels) for name, labels in found if name == "at_infer_model_info")
    assert info["engine_file"] == "first.column"
    assert len(info["checkpoint_sha256"]) == 64


@pytest.mark.parametrize("threshold", [0.1, 2.0, 0.0, -1.0])
def test_above_1_is_anomalous_whatever_the_threshold(threshold):
    scores = np.array([-2.0, -1.0, 0.0, 0.1, 2.0, 2.0000002], np.float32)
    stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=threshold))
    metrics = Metrics(Tally(), stream)
    for score in scores:
        pushed = stream.push_many(rows_of([score] * N), tags=[(0,)] * N)
        metrics.answer(stream, pushed, by_series=False, latency_s=0.0)
        ratio = of_series(samples(metrics.text()))[""]
        assert (ratio > 1) == bool(pushed.is_anomaly[-1])


def test_the_number_of_series_with_a_label_is_bounded_and_dropped_series_leave():
    metrics, _ = observed([f"s{i:05}" for i in range(MOST_LABELS + 7)])
    found = samples(metrics.text())
    assert len(of_series(found)) == MOST_LABELS
    assert found["at_infer_series", ()] == MOST_LABELS + 7
    assert found["at_infer_series_without_label", ()] == 7
    metrics, stream = observed(["a", "b"], max_series=2)
    pushed = stream.push_many(rows_of([1]), ["c"], tags=[(0, "c")])
    metrics.answer(stream, pushed, by_series=True, latency_s=0.0)
    assert list(of_series(samples(metrics.text()))) == ["b"]


def test_every_sample_has_the_type_that_the_format_demands():
    metrics, _ = observed(["a"])
    for family in text_string_to_metric_families(metrics.text()):
        assert family.type in ("counter", "gauge", "histogram", "info")
        assert family.documentation.endswith(".")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:80", ("::1", 80)), ("pi:0", ("pi", 0))],
)
def test_an_address_without_a_host_is_for_this_machine_only(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["9464", ":", ":70000", "::1:80", "host:http", ""])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match=r"metrics: .* is not \[HOST\]:PORT; give for example metrics=':9464'"):
        parse_address(text)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=600) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        return str(answer.read().decode())


def test_a_client_that_hangs_keeps_neither_others_nor_the_end_waiting():
    metrics, _ = observed(["a"])
    with MetricsServer(metrics, ":0") as server:
        host, port = server.server.server_address[:2]
        with socket.create_connection((host, port)) as hanging:
            hanging.sendall(b"GET /met")
            assert of_series(samples(fetch(server.url))) == {"a": 0.0}
            with pytest.raises(HTTPError) as refused:
                urllib.request.urlopen(server.url.removesuffix("/metrics"), timeout=600)
            assert refused.value.code == 404
            refused.value.close()


def test_clients_that_hang_take_a_bounded_number_of_threads(monkeypatch):
    """Each took one, without end."""
    monkeypatch.setattr("at_infer.live.metrics_server._Handler.timeout", None)
    metrics, _ = observed(["a"])
    with MetricsServer(metrics, ":0") as server, ExitStack() as hanging:
        address = server.server.server_address[:2]
        clients = [hanging.enter_context(socket.create_connection(address)) for _ in range(MOST_CLIENTS + 1)]
        clients[-1].settimeout(600)
        assert clients[-1].recv(1) == b""  # let go
        for client in clients:
            client.close()
        while any("process_request_thread" in thread.name for thread in threading.enumerate()):
            time.sleep(0.01)
        assert of_series(samples(fetch(server.url))) == {"a": 0.0}


def test_a_port_in_use_is_one_line(run_cli, models):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run_cli("watch", "--engine", models / "model.onnx", "--metrics", f":{port}")
    line = f"error: --metrics: cannot listen on :{port} (Address already in use); give another address or port\n"
    assert (answer.code, answer.out, answer.err) == (1, "", line)


@pytest.mark.slow
def test_scrapes_under_load_neither_stop_nor_change_scoring(live, models):  # noqa: F811
    count = 1500
    frame = rows(count, t=list(range(count)), s=[str(i % 7) for i in range(count)])
    process: Live = live("--metrics", ":0", "--threshold", 1.0)
    url = re.fullmatch(r"metrics: (http://127\.0\.0\.1:\d+/metrics)\n", process.process.stderr.readline())[1]
    texts: list[str] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            texts.append(fetch(url))

    scrapers = [threading.Thread(target=scrape) for _ in range(3)]
    for scraper in scrapers:
        scraper.start()
    writer = threading.Thread(target=process.put, args=(json_lines(frame) + "nonsense\n",))
    writer.start()
    answers = process.get(count)
    process.process.stderr.readline()  # the bad line has been counted
    writer.join()
    done.set()
    for scraper in scrapers:
        scraper.join()
    scores = {one["s"]: one["score"] for one in answers}
    ratios = {name: pytest.approx(score, rel=1e-6) for name, score in scores.items()}
    while of_series(last := samples(fetch(url))) != ratios:  # the last rows count a moment after they were written
        time.sleep(0.1)
    assert last["at_infer_rows_total", ()] == count
    assert last["at_infer_bad_lines_total", ()] == 1
    assert last["at_infer_anomalous_rows_total", ()] == sum(one["is_anomaly"] for one in answers)
    assert all(samples(text)["at_infer_rows_total", ()] <= count for text in texts)
    assert process.end().code == 0


def names_in_use() -> set[str]:
    """Of metrics, in the dashboard and the rules."""
    text = "".join(path.read_text() for path in EXAMPLES.iterdir())
    return set(re.findall(r"\bat_infer_\w+", text))


def test_the_examples_name_only_metrics_that_exist():
    metrics, _ = observed(["a"])
    metrics.tally.notifications[("webhook", "failed")] = 1
    known = {name for name, _ in samples(metrics.text())}
    assert names_in_use() - known == set()
    assert len(names_in_use()) >= 8


def test_the_dashboard_is_json_with_a_query_in_each_panel():
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    assert board["title"]
    for panel in board["panels"]:
        assert panel["targets"], panel["title"]
        assert all(target["expr"] for target in panel["targets"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_alert_rules_are_yaml_that_says_what_to_do():
    found = yaml.safe_load((EXAMPLES / "prometheus-rules.yml").read_text())
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 5
    for rule in rules:
        assert rule["expr"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert "docs/live.md" in rule["annotations"]["runbook"]
