"""Steps of a Dockerfile without Docker: what it copies, what it runs before it makes a user, and its health check."""

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "/opt/at-infer"
"""Where the images have their environment."""
START_S = 120


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction with its words, continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split()[0].upper(), line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def copy_files(dockerfile: Path, folder: Path) -> None:
    """What the image copies from the clone, and nothing else."""
    folder.mkdir()
    for name, words in instructions(dockerfile):
        if name == "COPY" and not words.startswith("--from"):
            for source in words.split()[:-1]:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, folder / source)


def install_commands(dockerfile: Path, venv: Path, python: str) -> list[str]:
    """Its commands that make the environment, for another folder and Python; packages may come from pip's cache."""
    arguments = dict(words.split("=", 1) for name, words in instructions(dockerfile) if name == "ARG")
    found = []
    for name, words in instructions(dockerfile):
        for command in words.split("&&") if name == "RUN" else ():
            if PREFIX in command and not command.strip().startswith("useradd"):
                filled = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]].strip('"'), command)
                filled = re.sub(r"^python3?(?= )", python, filled.strip().replace(PREFIX, str(venv)))
                found.append(filled.replace("--no-cache-dir ", ""))
    return found


def check_health(dockerfile: Path, venv: Path, model: Path, folder: Path) -> None:
    """The health check of the image succeeds while `watch` runs, and fails when it does not."""
    ((_, words),) = [one for one in instructions(dockerfile) if one[0] == "HEALTHCHECK"]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    _, *code = json.loads(words[words.index("[") :].replace(":9464", f":{port}"))
    check = [str(venv / "bin" / "python"), *code]
    assert subprocess.run(check, capture_output=True, cwd=folder).returncode != 0, "healthy without watch"
    (folder / "lines.jsonl").write_text("")
    watch = [str(venv / "bin" / "at-infer"), "watch", "--engine", str(model), "--follow", "lines.jsonl", "--no-time"]
    with subprocess.Popen([*watch, f"--metrics=:{port}"], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + START_S
        while subprocess.run(check, capture_output=True, cwd=folder).returncode != 0:
            assert process.poll() is None, f"watch: {process.stderr.read() if process.stderr else ''}"
            assert time.monotonic() < end, "watch is not healthy"
            time.sleep(1)
        process.terminate()
