"""A Python that has its imports behind it: programs run in forks of one process, with traces made once or quickly.

For tests in which a program, not the start of a process, is what matters. `python -IS tests/warm.py SOCKET WORDS...`
does what `python WORDS...` does: the same streams, folder, environment and exit code, and signals reach it. Processes
that it starts with `sys.executable` are warm too if WARM_PYTHON names the one to start them with.
"""

import os
import signal
import socket
import struct
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ask(address: str, words: list[str]) -> int:
    """Let the server at the address run a program; its exit code, negative if a signal ended it."""
    import json

    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until they can be forwarded
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109, pathlib takes its time
        socket.send_fds(connection, [struct.pack("i", len(request))], [0, 1, 2])
        connection.sendall(request)
        for number in FORWARDED:
            signal.signal(number, lambda number, _: connection.sendall(struct.pack("i", number)))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return int(struct.unpack("i", connection.recv(4, socket.MSG_WAITALL))[0])


def serve(address: str) -> None:
    """Fork a process for every request, until standard input ends."""
    import select
    from importlib import import_module

    import torch

    import export.pipeline
    from tests.once import trace_in_tests

    for name in (
        "cli",
        "engines.ort",
        "evaluation.evaluate",
        "live.session",
        "report.scores_page",
        "scoring.score_file",
    ):
        import_module(f"at_infer.{name}")
    torch.set_num_threads(1)
    export.pipeline.trace = trace_in_tests  # type: ignore[attr-defined]
    signal.signal(signal.SIGCHLD, _bury)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([server, 0], [], [])
            if 0 in ready:
                return
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                try:
                    _attend(connection)
                finally:  # if who asked is gone, too: an exception would end in a wait for threads that a fork has not
                    os._exit(0)
            connection.close()


def _bury(*_: object) -> None:
    """Ask for the end of every process that has ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _attend(connection: socket.socket) -> None:
    """Run what is asked for in a process, pass signals on to it, and its end back."""
    import json
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    words, folder, environment = json.loads(connection.recv(struct.unpack("i", head)[0], socket.MSG_WAITALL))
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os._exit(_run(words, folder, environment))
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(struct.pack("i", code))
            return
        number = connection.recv(4)
        os.kill(pid, struct.unpack("i", number)[0] if number else signal.SIGKILL)  # who asked is gone


def _run(words: list[str], folder: str, environment: dict[str, str]) -> int:
    """What Python does with its words, up to the code that it ends with."""
    import atexit
    import runpy
    import threading
    import traceback
    from types import ModuleType

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = environment.get("WARM_PYTHON", sys.executable)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    code: object = 0
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, folder)
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(words[1], main.__dict__)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(words[0]))  # noqa: PTH120
            runpy.run_path(words[0], run_name="__main__")
        threading._shutdown()  # type: ignore[attr-defined]
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120
    return code or 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ended = ask(sys.argv[1], sys.argv[2:])
        if ended < 0:
            if -ended in FORWARDED:
                signal.signal(-ended, signal.SIG_DFL)
            os.kill(os.getpid(), -ended)
        os._exit(ended)
