"""Events of incidents on their way out: a bounded queue and a thread for each way, so that scoring never waits."""

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Protocol

from at_infer.incidents.tracker import Event
from at_infer.live.lines import Say
from at_infer.live.tally import Tally

LAST_WAIT_S = 0.1
"""Between two attempts when the end is near."""


class NotDeliveredError(Exception):
    """An event did not get through; `again`: it may if it is sent once more."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Way(Protocol):
    """How events leave."""

    kind: str
    """As metrics call it."""
    name: str
    """For messages; a secret address is not part of it."""

    def body(self, event: Event) -> bytes:
        """Payload of an event."""

    def send(self, body: bytes) -> None:
        """Takes a bounded time, or raises `NotDeliveredError`."""

    def cancel(self) -> None:
        """Abort the current delivery, from another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long events are kept and tried again."""

    capacity: int = 1000
    """Events that may wait; the oldest is dropped for one more."""
    first_wait_s: float = 1.0
    """Before the second attempt; doubled from one to the next."""
    longest_wait_s: float = 60.0
    give_up_s: float = 3600.0
    """An event that is older is not tried again."""
    close_s: float = 5.0
    """At the end, for all that waits."""


class Delivery:
    """Sends events one after the other in the order they came; each outage is said once, and its end."""

    def __init__(self, way: Way, tally: Tally, say: Say, patience: Patience | None = None) -> None:
        self.way, self.say, self.patience = way, say, patience or Patience()
        self._counts = tally.notifications
        for result in ("delivered", "failed", "dropped"):
            self._counts[way.kind, result] = 0
        self._changed = Condition()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._unfinished = 0
        """Waiting or being sent."""
        self._closing = self._abandoned = self._failing = self._dropping = False
        self._thread = Thread(target=self._work, name=way.kind, daemon=True)
        self._thread.start()

    def offer(self, event: Event) -> None:
        """Take an event in, at once."""
        body = self.way.body(event)
        with self._changed:
            full = len(self._waiting) == self.patience.capacity
            if full:
                self._waiting.popleft()
            self._unfinished += not full
            self._waiting.append((time.monotonic(), body))
            self._changed.notify()
        if full:
            self._count("dropped")
            if not self._dropping:
                self.say(f"{self.way.name}: {self.patience.capacity} events wait already; dropping the oldest of them")
        self._dropping = full

    def close(self) -> None:
        """Wait briefly for pending deliveries, and report those that failed."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self.patience.close_s)
        if self._thread.is_alive():
            self.way.cancel()
            self._abandoned, lost = True, self._unfinished
            self._count("failed", lost)
            self.say(f"{self.way.name}: {lost} event{'s' * (lost > 1)} of incidents not delivered before the end")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._abandoned or not self._waiting:
                    return
                since, body = self._waiting.popleft()
            self._deliver(body, since + self.patience.give_up_s)
            with self._changed:
                self._unfinished -= 1

    def _deliver(self, body: bytes, until: float) -> None:
        wait_s = self.patience.first_wait_s
        while True:
            try:
                self.way.send(body)
            except NotDeliveredError as error:
                again = error.again and time.monotonic() + wait_s < until
                if not self._failing and not self._abandoned:
                    more = "trying again" if again else "the event is lost"
                    self.say(f"{self.way.name}: an event of an incident was not delivered ({error}); {more}")
                self._failing = True
                if not again:
                    self._count("failed")
                    return
            else:
                self._count("delivered")
                if self._failing:
                    self.say(f"{self.way.name}: delivers again")
                self._failing = False
                return
            with self._changed:
                if self._closing:
                    self._changed.wait(LAST_WAIT_S)
                else:
                    self._changed.wait_for(lambda: self._closing, wait_s)
                if self._abandoned:
                    return
            wait_s = min(2 * wait_s, self.patience.longest_wait_s)

    def _count(self, result: str, number: int = 1) -> None:
        self._counts[self.way.kind, result] += number
