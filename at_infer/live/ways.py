"""Ways out for events of incidents: a command of the user's, and a POST to a web address."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from at_infer import __version__
from at_infer.choices import NoticeFormat
from at_infer.errors import ConfigError
from at_infer.incidents.tracker import Event
from at_infer.live.delivery import NotDeliveredError
from at_infer.live.notices import FORMATS, notice_line

COMMAND_S = 30.0
WEBHOOK_S = 10.0
AGAIN = (408, 425, 429)
"""Answers below 500 that ask for another attempt."""


class Command:
    """Runs a command for each event, with the event as one line of JSON on its standard input."""

    kind = "command"

    def __init__(self, text: str, *, timeout_s: float = COMMAND_S) -> None:
        try:
            self.words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"on_incident: {text!r} is not a command ({error})") from None
        if not self.words or shutil.which(self.words[0]) is None:
            raise ConfigError(f"on_incident: {text!r} is not a command that can be run here; give its full path")
        self.timeout_s, self.name = timeout_s, f"command {self.words[0]}"
        self._running: subprocess.Popen[bytes] | None = None

    def body(self, event: Event) -> bytes:
        """One line of JSON."""
        return notice_line(event)

    def send(self, body: bytes) -> None:
        """Run it; it is not run again, because half of it may have been done."""
        try:
            # What it prints goes to stderr, as stdout is for rows; Ctrl-C is for at-infer alone.
            self._running = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
        except OSError as error:
            raise NotDeliveredError(f"it cannot be run: {error.strerror}", again=False) from None
        with self._running as process:
            try:
                process.communicate(body, timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                self.cancel()
                raise NotDeliveredError(f"it took longer than {self.timeout_s:g} s", again=False) from None
        if process.returncode:
            raise NotDeliveredError(f"it ended with code {process.returncode}", again=False)

    def cancel(self) -> None:
        """Kill it, and all that it started."""
        if self._running is not None and self._running.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)


class _NoRedirects(HTTPRedirectHandler):
    """A POST that is redirected would become a GET."""

    def redirect_request(self, *_: object) -> None:
        return


class Webhook:
    """Posts each event to an address. Its path is often a secret, so only its host is ever named."""

    kind = "webhook"

    def __init__(self, url: str, form: NoticeFormat = "json", *, timeout_s: float = WEBHOOK_S) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            (host or "").encode("idna")
            if not (parts.path + parts.query).isascii() or not url.isprintable() or " " in url:
                raise ValueError
        except ValueError:
            raise ConfigError(
                "webhook: is not a URL; give http://... or https://..., with %xx for other signs"
            ) from None
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError("webhook: is not a URL of a web server; give http://... or https://...")
        if parts.username is not None:
            raise ConfigError("webhook: has a user name in its URL; use on_incident=... with curl for that")
        self.url, self.form, self.timeout_s = url, form, timeout_s
        self.name = f"webhook {host}" + (f":{port}" if port else "")
        self._opener = build_opener(_NoRedirects)

    def body(self, event: Event) -> bytes:
        """In the format that the receiver expects."""
        return json.dumps(FORMATS[self.form](event)).encode()

    def send(self, body: bytes) -> None:
        """Any answer below 300 will do."""
        headers = {"Content-Type": "application/json", "User-Agent": f"at-infer/{__version__}"}
        try:
            self._opener.open(Request(self.url, body, headers, method="POST"), timeout=self.timeout_s).close()
        except HTTPError as error:
            error.close()
            raise NotDeliveredError(f"answer {error.code}", again=error.code >= 500 or error.code in AGAIN) from None
        except URLError as error:
            raise NotDeliveredError(_why(error.reason), again=True) from None
        except (OSError, HTTPException) as error:
            raise NotDeliveredError(_why(error), again=True) from None

    def cancel(self) -> None:
        """The process ends, and the connection with it."""


def _why(reason: object) -> str:
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)
