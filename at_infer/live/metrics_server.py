"""Metrics over HTTP: a thread of its own answers, so that a scrape never holds up scoring."""

import re
import socket
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from typing import Any, ClassVar, Self

from at_infer.errors import ConfigError
from at_infer.live.metrics import CONTENT_TYPE, Metrics

LOOPBACK = "127.0.0.1"
POLL_S = 0.1
CLIENT_S = 10.0
"""A client that says or reads nothing for so long is let go."""
MOST_CLIENTS = 32
"""At once, each with a thread; one more is let go unheard."""


def parse_address(text: str) -> tuple[str, int]:
    """`[HOST]:PORT`; without a host only this machine can ask."""
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*)):(\d{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(f"metrics: {text!r} is not [HOST]:PORT; give for example metrics=':9464'")
    return match[1] or match[2] or LOOPBACK, int(match[3])


class MetricsServer:
    """Serves `/metrics` until it is closed."""

    def __init__(self, metrics: Metrics, address: str) -> None:
        host, port = parse_address(address)

        class Server(ThreadingTCPServer):  # HTTPServer would look up its own name, which takes long where DNS fails
            allow_reuse_address = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True  # a client that hangs does not keep the process from ending
            block_on_close = False
            room = BoundedSemaphore(MOST_CLIENTS)

            def process_request(self, request: Any, client_address: Any) -> None:
                """In a thread of its own, if there is room for one."""
                if not self.room.acquire(blocking=False):
                    self.shutdown_request(request)
                    return
                try:
                    super().process_request(request, client_address)
                except RuntimeError:  # no thread could be started
                    self.room.release()
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                """And make room again."""
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    self.room.release()

            def handle_error(self, *_: object) -> None:
                """A client that has disconnected is not an error."""

        class Handler(_Handler):
            source = metrics

        try:
            self.server = Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"metrics: cannot listen on {address} ({error.strerror or error}); give another address or port"
            ) from None
        self.thread = Thread(target=self.server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """Where to ask, with the port that was found for port 0."""
        host, port = self.server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Handler(BaseHTTPRequestHandler):
    source: ClassVar[Metrics]
    timeout = CLIENT_S
    server_version = "at-infer"
    sys_version = ""

    def do_GET(self) -> None:
        """One scrape."""
        if self.path.split("?")[0] != "/metrics":
            self.send_error(404, "ask for /metrics")
            return
        body = self.source.text().encode(errors="replace")
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stderr is for rows."""
