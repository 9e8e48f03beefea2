"""Notifications of an incident: a JSON line, a message for Slack, an alert for Alertmanager."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from at_infer.choices import NoticeFormat
from at_infer.incidents.incident import Incident, as_seconds
from at_infer.incidents.tracker import Event

ALERT_LASTS = timedelta(days=7)
"""Alertmanager resolves an alert after some time; an open one is not repeated, so it must last."""


def notice(event: Event) -> dict[str, Any]:
    """The event as JSON values: its kind, and the current state of the incident."""
    return {"event": event.kind, **event.incident.as_json()}


def notice_line(event: Event) -> bytes:
    """The same as one line."""
    return json.dumps(notice(event), separators=(",", ":")).encode() + b"\n"


def sentence(event: Event) -> str:
    """For people."""
    one = event.incident
    where = f" on {one.series}" if one.series else ""
    what = {"opened": "opened", "worse": "got worse", "closed": "is over"}[event.kind]
    how_long = f"from {one.begin} to {one.end} ({one.rows} rows)" if event.kind == "closed" else f"since {one.begin}"
    if one.kind == "missing feature":
        return f"Incident {one.id}{where} {what}: {one.causes[0].feature} has no value {how_long}"
    why = "".join(f", {text}" for text in _causes(one))
    return f"Incident {one.id}{where} {what}: {one.ratio:.2f} times the threshold {how_long}{why}"


def slack_message(event: Event) -> dict[str, Any]:
    """For an incoming webhook of Slack, or of what imitates it (Mattermost, Rocket.Chat)."""
    text = sentence(event).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text}


def alertmanager_alerts(event: Event) -> list[dict[str, Any]]:
    """For `/api/v2/alerts`. Labels say which alert it is, so they are the same from the opening to the end."""
    one, now = event.incident, datetime.now(UTC)
    seconds, begin = as_seconds(one.begin), now
    if seconds is not None:
        with suppress(ValueError, OverflowError, OSError):  # the first hours of the year 1 are in no year of UTC
            begin = min(now, datetime.fromtimestamp(seconds, UTC))
    labels = {"alertname": "AtInferIncident", "incident": one.id, "series": one.series}
    return [
        {
            "labels": {name: text for name, text in labels.items() if text},
            "annotations": {"summary": sentence(event), "incident": json.dumps(one.as_json())},
            "startsAt": begin.isoformat(),
            "endsAt": (now if event.kind == "closed" else now + ALERT_LASTS).isoformat(),
        }
    ]


FORMATS: dict[NoticeFormat, Callable[[Event], Any]] = {
    "json": notice,
    "slack": slack_message,
    "alertmanager": alertmanager_alerts,
}


def _causes(one: Incident) -> list[str]:
    of = [" of the error", "", ""]
    return [
        f"{cause.feature}{f' ({cause.view})' if cause.view else ''} {cause.share:.0%}{what}"
        for cause, what in zip(one.causes, of, strict=False)
    ]
