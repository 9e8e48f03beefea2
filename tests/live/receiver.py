"""A web server that answers as a script tells it, for tests of what is sent to it."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Receiver:
    """Gives the answers in turn, the last one for ever; `hold` keeps every answer back until it is set."""

    def __init__(self, *answers: int, hold: threading.Event | None = None) -> None:
        self.got: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self._came = threading.Condition()
        script = list(answers or (200,))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with outer._came:
                    outer.got.append(json.loads(body))
                    outer.headers.append(dict(self.headers))
                    answer = script.pop(0) if len(script) > 1 else script[0]
                    outer._came.notify_all()
                if hold is not None:
                    hold.wait()
                self.send_response(answer)
                if answer in (301, 302):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/secret"

    @property
    def name(self) -> str:
        return f"webhook 127.0.0.1:{self.server.server_address[1]}"

    def wait(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        """What came, once it is enough."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self.got), 600)
            return list(self.got)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
