"""Whether the head of a cluster still answers: by itself, Ray ends the program after a minute, in its own words."""

import socket
import time

from at_infer.errors import ClusterError

PROBE_S = 3.0  # for a port to open
ASK_S = 2.0  # from one look to the next
PATIENCE_S = 15.0  # it may be started again meanwhile


class Head:
    """The process of a cluster that knows all others; None for an address that only Ray itself can ask."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.is_lost = False
        self._answered = self._asked = time.monotonic()

    def check(self) -> None:
        """Raise if it has not answered for a while; asks now and then."""
        now = time.monotonic()
        if self.address is None or now < self._asked + ASK_S:
            return
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
            self._answered = time.monotonic()
        except (OSError, ValueError):
            self.is_lost = time.monotonic() > self._answered + PATIENCE_S
        self._asked = time.monotonic()
        if self.is_lost:
            raise ClusterError(
                f"ray: the head of the cluster at {self.address} has not answered for {PATIENCE_S:g} s; start it again"
            )
