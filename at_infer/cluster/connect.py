"""Connecting to a Ray cluster, or starting one on this machine: the only file that imports ray."""

import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from at_infer.cluster.head import PROBE_S
from at_infer.errors import ClusterError, ConfigError, MissingExtraError
from at_infer.installed import install_extra

Say = Callable[[str], None]

ANSWER_S = 9.0  # for a first answer: who does not give one is no Ray cluster
CONNECT_S = 60.0  # for one that has answered: on a busy machine it starts a process for every client
NOT_STARTED = "Initialization failure from server"  # of a cluster that has answered, but is not yet ready for clients
CLIENT_PAUSES_S = (0.5, 2.0, 6.0)  # before it is asked again: on a busy machine it takes seconds to become ready
OBJECT_STORE_BYTES = 80 << 20  # what passes between processes is small: rows are read and written by the workers


def load_ray() -> Any:
    """Import ray so that it reports nothing to anyone and keeps quiet."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # It would warn that a future version will no longer hide GPUs from workers without one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        import ray
    except ImportError:
        raise MissingExtraError(f"ray: Ray is not installed; {install_extra('ray')}") from None
    return ray


@contextmanager
def ray_cluster(address: str, *, local_cpus: int, say: Say) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine, and leave it as it was found."""
    if address not in ("auto", "local"):
        _parse(address)
    ray = load_ray()
    if ray.is_initialized():  # the caller's own program runs on Ray
        if address != "auto":
            raise ConfigError(f"ray: this program is connected to a cluster already, not to {address}; pass auto")
        say(f"on the cluster that this program is connected to, {_describe(ray)}")
        yield ray
        return
    if address == "auto" and _find_running(ray):
        say(f"connected to the running Ray cluster, {_describe(ray)}")
    elif address.startswith("ray://"):
        _connect(ray, address)
        say(f"connected to {address}, {_describe(ray)}")
    else:
        with _own_cluster(ray, local_cpus):
            found = "no Ray cluster is running; " if address == "auto" else ""
            say(f"{found}started a Ray cluster on this machine, {_describe(ray)}")
            yield ray
        return
    try:
        yield ray
    finally:
        ray.shutdown()


def _describe(ray: Any) -> str:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus, gpus = (int(sum(node.get(kind, 0) for node in nodes)) for kind in ("CPU", "GPU"))
    counts = {"machine": len(nodes), "CPU": cpus, "GPU": gpus}
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())


@contextmanager
def _own_cluster(ray: Any, cpus: int) -> Iterator[None]:
    """A cluster of this machine alone: no dashboard, no log lines, no port that others can reach, nothing left behind.

    Other users of this machine are kept out by a token. Left alone, Ray would write one to the home folder and ask
    for it ever after; this one lives as long as the process.
    """
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    with suppress(ImportError, AttributeError):
        from ray._private import ray_constants

        ray_constants.ENABLE_RAY_CLUSTER = False  # what Ray itself does on macOS and Windows: loopback only
    # A short path: there are sockets in it, whose names have a limit.
    short = "/tmp" if Path("/tmp").is_dir() else None
    folder = tempfile.mkdtemp(prefix="at-infer-", dir=short)
    try:
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=folder,
            )
        except Exception as error:  # on a busy machine its processes do not start in the time that Ray gives them
            raise ClusterError(
                f"ray='local': no cluster could be started on this machine ({first_line(error)}); try again"
            ) from None
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _find_running(ray: Any) -> bool:
    """Connect to the cluster that RAY_ADDRESS names or that `ray start` runs here; False if there is none."""
    named = os.environ.get("RAY_ADDRESS")
    if named and named not in ("auto", "local"):
        _connect(ray, named)
        return True
    address = None if named == "local" else _left_word()
    if address is None:
        return False
    host, _, port = address.rpartition(":")
    advice = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN if it wants a token, or pass ray='local'"
    answer = _ask(host, int(port), GCS)
    if answer != "yes":
        what = "requires a token" if answer == "token" else "does not answer"
        raise ClusterError(f"ray='auto': the cluster at {address} {what}; {advice}")
    try:
        _in_time(lambda: ray.init(address="auto", log_to_driver=False, logging_level=logging.CRITICAL))
    except Exception as error:  # Ray raises ConnectionError, RuntimeError, its own and others
        reason = first_line(error) if str(error) else "no answer"
        raise ClusterError(f"ray='auto': the cluster at {address} refuses this program ({reason}); {advice}") from None
    return True


def _left_word() -> str | None:
    """Where `ray start` has said that its cluster is, if something listens there.

    Ray's own search would also find clusters that other programs have started for themselves.
    """
    try:
        from ray._private.utils import read_ray_address

        address: str = read_ray_address() or ""
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=PROBE_S).close()
    except (ImportError, OSError, ValueError):
        return None
    return address


def _parse(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port or 10001  # Ray's own default
    except ValueError:
        host = None
    if parts.scheme != "ray" or not host:
        raise ConfigError(f"ray: {address!r} is none of auto, local and ray://host:port")
    return host, port


def _connect(ray: Any, address: str) -> None:
    host, port = _parse(address if "://" in address else f"ray://{address}")
    advice = "start one there with ray start --head, or pass ray='local'"
    try:
        socket.create_connection((host, port), timeout=PROBE_S).close()
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise ClusterError(f"{address}: no Ray cluster can be reached ({reason}); {advice}") from None
    answer = _ask(host, port, CLIENT_SERVER if address.startswith("ray://") else GCS)
    if answer == "none":
        raise ClusterError(f"{address}: the server there is not Ray; {advice}")
    if answer == "token":
        raise ClusterError(
            f"{address}: the cluster requires a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, "
            f"as printed by ray get-auth-token on the cluster"
        )
    for pause_s in [*CLIENT_PAUSES_S, None]:
        try:
            _in_time(lambda: ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL))
            return
        except Exception as error:  # Ray raises ConnectionError, RuntimeError, gRPC's own and others
            not_started = NOT_STARTED in str(error)
            if not_started and pause_s is not None:
                time.sleep(pause_s)
                continue
            # It sends a traceback, whose last line is the error.
            reason = last_line(error) if not_started else " ".join(str(error).split())[:200] or type(error).__name__
            raise ClusterError(f"{address}: no Ray cluster can be reached ({reason}); {advice}") from None


class Question(NamedTuple):
    """Probe a cluster without connecting to it."""

    file: str
    """Of Ray's messages."""
    service: str
    method: str
    request: str
    fields: dict[str, int]


CLIENT_SERVER = Question("ray_client", "RayletDriverStub", "ClusterInfo", "ClusterInfoRequest", {"type": 6})  # a ping
GCS = Question("gcs_service", "NodeInfoGcsServiceStub", "GetClusterId", "GetClusterIdRequest", {})


def _ask(host: str, port: int, question: Question) -> Literal["yes", "token", "none"]:
    """Is there a Ray cluster that lets this program in, or wants another token, or gives no answer?

    Left to itself, Ray waits 30 s and then says "ray client connection timeout" where a token is missing, and for
    minutes where something else listens; so it is asked first, with its own messages.
    """
    try:
        grpc: Any = import_module("grpc")
        messages: Any = import_module(f"ray.core.generated.{question.file}_pb2")
        services: Any = import_module(f"ray.core.generated.{question.file}_pb2_grpc")
        request = getattr(messages, question.request)(**question.fields)
        stub = getattr(services, question.service)
    except (ImportError, AttributeError, ValueError):
        return "yes"  # another version of Ray: connecting will tell
    token: tuple[tuple[str, str], ...] = ()
    with suppress(Exception):  # a token that Ray cannot read is as good as none
        token = import_module(
            "ray._private.authentication.grpc_authentication_client_interceptor"
        )._get_authentication_metadata_tuple()
    try:
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            getattr(stub(channel), question.method)(request, timeout=ANSWER_S, metadata=token)
    except grpc.RpcError as error:
        return "token" if error.code() == grpc.StatusCode.UNAUTHENTICATED else "none"
    return "yes"


def _in_time(act: Callable[[], object]) -> None:
    """Do something that may hang, but for no longer than anybody would wait."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="ray-connect", daemon=True)
    thread.start()
    thread.join(CONNECT_S)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0]


def head_address(ray: Any) -> str | None:
    """Host and port of the head, where this program can reach it; None if it speaks to a server for clients."""
    if ray.util.client.ray.is_connected():
        return None
    with suppress(Exception):  # another version of Ray
        return str(ray.get_runtime_context().gcs_address)
    return None


def first_line(error: Exception) -> str:
    """What an error of Ray says, without the advice and traces below."""
    return _lines(error)[0][:300]


def last_line(error: Exception) -> str:
    """What an error says that ends with the traceback of another process."""
    return _lines(error)[-1][:300]


def _lines(error: Exception) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
