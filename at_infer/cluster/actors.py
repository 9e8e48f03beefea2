"""Workers on a Ray cluster: one actor per engine, jobs given out one at a time, the dead replaced."""

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from at_infer.cluster.connect import Say, first_line, head_address, ray_cluster
from at_infer.cluster.head import Head
from at_infer.cluster.worker import Failure, Job, Lost, Opened, WorkerSettings
from at_infer.errors import AtInferError, ClusterError, ConfigError
from at_infer.memory import own_memory

POLL_S = 0.2
DEATHS = 3  # of one worker, before its place is given up
PATIENCE_S = 20.0  # without a single worker, before it is said


class Placement(NamedTuple):
    """Where a worker runs."""

    node: str
    gpus: int


def placements(nodes: list[dict[str, Any]], *, threads: int, provider: str, most: int | None) -> list[Placement]:
    """One worker per GPU; on machines without one, as many as their CPUs give `threads` to, unless a GPU is needed."""
    found: list[list[Placement]] = []
    for node in nodes:
        gpus, cpus = int(node["Resources"].get("GPU", 0)), int(node["Resources"].get("CPU", 0))
        if not node["Alive"]:
            continue
        if gpus:
            found.append([Placement(node["NodeID"], 1)] * gpus)
        elif provider == "cpu":
            found.append([Placement(node["NodeID"], 0)] * (cpus // threads))
    # Machines take turns, those with GPUs first, so that few workers are spread over many machines.
    found.sort(key=lambda group: -group[0].gpus if group else 0)
    turns = max((len(group) for group in found), default=0)
    return [group[turn] for turn in range(turns) for group in found if turn < len(group)][:most]


class Actor:
    """The shell that Ray puts around a `SplitWorker`."""

    def __init__(self, settings: WorkerSettings, has_gpu: bool) -> None:
        # One thread pool per worker, not one per worker and CPU; polars reads this when it is first imported.
        os.environ.setdefault("POLARS_MAX_THREADS", str(settings.threads))
        own_memory()
        from at_infer.cluster.worker import SplitWorker

        self.worker, self.has_gpu = SplitWorker(settings), has_gpu

    def open(self) -> Opened | Failure:
        """Open the engine."""
        capability = None
        if self.has_gpu:
            from at_infer.engines.tensorrt.gpu import find_gpu

            with suppress(AtInferError):
                capability = find_gpu().compute_capability
        return self.worker.open(capability)

    def call(self, method: str, payload: Any) -> Any:
        """Do a job."""
        return getattr(self.worker, method)(payload)


@dataclass(slots=True, eq=False)
class ActorSlot:
    """A placement, the actor there, and what it is doing."""

    placement: Placement
    actor: Any
    job: Job | None = None
    """None: it opens its engine, or waits."""
    deaths: int = 0


@dataclass(slots=True)
class RayWorkers:
    """One actor per placement; one that dies is replaced."""

    ray: Any
    settings: WorkerSettings
    say: Say
    count: int = 0
    opened: list[Opened] = field(default_factory=list)
    slots: list[ActorSlot] = field(default_factory=list)
    idle: deque[ActorSlot] = field(default_factory=deque)
    pending: dict[Any, ActorSlot] = field(default_factory=dict)
    under_way: int = 0
    """Jobs, unlike openings."""
    head: Head = field(default_factory=lambda: Head(None))

    def start(self, places: list[Placement]) -> None:
        """Ask for all workers; work begins when the first is ready."""
        self.count = len(places)
        for placement in places:
            slot = ActorSlot(placement, None)
            self.slots.append(slot)
            self._fill(slot, soft=False)

    def _fill(self, slot: ActorSlot, *, soft: bool) -> None:
        remote = self.ray.remote(Actor).options(
            num_cpus=self.settings.threads,
            num_gpus=slot.placement.gpus,
            max_restarts=0,  # who died on what is counted here
            scheduling_strategy=self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                slot.placement.node, soft=soft
            ),
        )
        slot.actor = remote.remote(self.settings, bool(slot.placement.gpus))
        self.pending[slot.actor.open.remote()] = slot

    def run(self, jobs: deque[Job]) -> Iterator[tuple[Job, Any] | None]:
        """Give out jobs and yield what comes back."""
        begun, told = time.monotonic(), False
        self._give_out(jobs)
        while jobs or self.under_way:
            refs = list(self.pending)
            # All that are ready at once, for there may be many; otherwise wait for one.
            ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
            if not ready:
                ready, _ = self.ray.wait(refs, num_returns=1, timeout=POLL_S)
            for ref in ready:
                yield from self._take(ref)
                self._give_out(jobs)
            if not ready:
                if not told and not self.opened and time.monotonic() - begun > PATIENCE_S:
                    self.say("waiting for a worker: all CPUs or GPUs of the cluster are taken")
                    told = True
                self.head.check()
                yield None

    def _give_out(self, jobs: deque[Job]) -> None:
        while jobs and self.idle:
            slot, job = self.idle.popleft(), jobs.popleft()
            slot.job = job
            self.pending[slot.actor.call.remote(job.method, job.payload)] = slot
            self.under_way += 1

    def _take(self, ref: Any) -> Iterator[tuple[Job, Any]]:
        slot = self.pending.pop(ref)
        job, slot.job = slot.job, None
        self.under_way -= job is not None
        try:
            answer = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError:
            raise  # a bug, with the worker's traceback
        except self.ray.exceptions.RayError as error:
            self._replace(slot, error)
            answer = Lost(first_line(error))
        else:
            if job is None:
                if isinstance(answer, Failure):
                    raise ClusterError(answer.message)
                self.opened.append(answer)
            self.idle.append(slot)
        if job is not None:
            yield job, answer

    def _replace(self, slot: ActorSlot, error: Exception) -> None:
        """A new actor in the place of one that died, or on any other if the machine is gone."""
        with suppress(Exception):
            self.ray.kill(slot.actor)
        slot.deaths += 1
        if slot.deaths < DEATHS:
            self._fill(slot, soft=True)
            return
        self.slots.remove(slot)
        if not self.slots:
            raise ClusterError(f"all workers died; last error: {first_line(error)}")

    def stop(self) -> None:
        """End all workers; without a head nobody could."""
        for slot in () if self.head.is_lost else self.slots:
            with suppress(Exception):
                self.ray.kill(slot.actor)


@contextmanager
def ray_workers(
    settings: WorkerSettings, *, address: str, most: int | None = None, say: Say = lambda _: None
) -> Iterator[RayWorkers]:
    """Workers on a cluster, for as long as this is open."""
    if most is not None and most < 1:
        raise ConfigError(f"workers: {most} is too small; at least 1")
    cpus = (most or max(1, (os.cpu_count() or 1) // settings.threads)) * settings.threads
    with ray_cluster(address, local_cpus=cpus, say=say) as ray:
        places = placements(ray.nodes(), threads=settings.threads, provider=settings.engine_options.provider, most=most)
        if not places:
            need = f"{settings.threads} CPUs" if settings.engine_options.provider == "cpu" else "a GPU"
            raise ClusterError(f"ray: no machine of the cluster {address} has {need} for a worker")
        workers = RayWorkers(ray, settings, say, head=Head(head_address(ray)))
        try:
            workers.start(places)
            yield workers
        finally:
            workers.stop()
