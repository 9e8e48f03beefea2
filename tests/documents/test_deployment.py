"""Dockerfiles, compose file and workflows: rules of hadolint, schemas, and that they name what exists."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from at_infer.cli import app
from tests.image_steps import install_commands, instructions

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = ROOT / "docker" / "compose.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")


def last_stage(path: Path) -> list[tuple[str, str]]:
    found = instructions(path)
    return found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_has_a_tag_a_user_a_healthcheck_and_one_entry_point(path: Path) -> None:
    found = instructions(path)
    arguments = dict(words.split("=", 1) for name, words in found if name == "ARG")
    for base in (words.split()[0] for name, words in found if name == "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], base)
        assert re.fullmatch(r"[\w./-]+:[\w.-]+", image), f"{image} has no tag"
        assert not image.endswith(":latest")
    stage = last_stage(path)
    names = [name for name, _ in stage]
    (user,) = [words for name, words in stage if name == "USER"]
    assert user.isdigit()
    assert int(user) > 0, "a number, so that a cluster can see that it is not root"
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    assert json.loads(next(words for name, words in stage if name == "ENTRYPOINT")) == ["at-infer"]
    for name in ("HEALTHCHECK", "ENTRYPOINT", "CMD"):
        assert names.count(name) == 1


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_steps_follow_the_rules_of_hadolint(path: Path) -> None:
    for name, words in instructions(path):
        assert name not in ("ADD", "MAINTAINER")
        assert "sudo" not in words.split()
        if "apt-get install" in words:
            assert "--no-install-recommends" in words
            assert "rm -rf /var/lib/apt/lists/*" in words
        if "pip install" in words:
            assert "--no-cache-dir" in words
        if name in ("ENTRYPOINT", "CMD"):
            assert words.startswith("["), "exec form: signals reach the process"
        if name == "WORKDIR":
            assert words.startswith("/")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_is_copied_exists_and_is_not_ignored(path: Path) -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    for name, words in instructions(path):
        if name == "COPY" and not words.startswith("--from"):
            for source in words.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in allowed, f".dockerignore hides {source}"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run([str(HADOLINT), str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_steps_that_make_dist_runs_are_those_of_the_images(tmp_path: Path) -> None:
    for path in DOCKERFILES:
        made, installed = install_commands(path, tmp_path / "venv", "python3.12")
        assert re.fullmatch(rf"python3.12 -m venv( --system-site-packages)? {tmp_path}/venv", made)
        assert installed.startswith(f"{tmp_path}/venv/bin/pip install ")
        assert "$" not in installed


def test_the_compose_file_runs_commands_and_files_that_exist() -> None:
    compose = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    watch = compose["services"]["watch"]
    command, *words = watch["command"]
    options = {word for parameter in COMMANDS[command].params for word in parameter.opts}
    assert {word.split("=")[0] for word in words} <= options
    assert (COMPOSE.parent / watch["build"]["context"] / watch["build"]["dockerfile"]).is_file()
    known = {parameter.envvar for parameter in COMMANDS[command].params}
    assert set(watch["environment"]) <= known
    mounted = [volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]]
    for source in mounted:
        if source.startswith("..") or source.endswith(".yml"):
            assert (COMPOSE.parent / source).is_file(), source
    (port,) = [word.rpartition(":")[2] for word in words if word.startswith("--metrics")]
    assert watch["expose"] == [port]
    scraped = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert scraped[0]["static_configs"][0]["targets"] == [f"watch:{port}"]
    assert all(f":{port}/metrics" in path.read_text(encoding="utf-8") for path in DOCKERFILES)


@pytest.mark.parametrize(
    ("schema", "path"),
    [*(("github-workflows", path) for path in WORKFLOWS), ("compose-spec", COMPOSE)],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed")
def test_files_follow_their_schema(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_exists_with_few_rights_and_a_limit(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z]+)(?: [a-z]+)*:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
                continue
            first, *words = shlex.split(step["run"])
            if first == "make":
                assert words[0] in targets | {"test"}, step["run"]
            elif first.endswith("python"):
                module = words[words.index("-m") + 1]
                place = ROOT / module.replace(".", "/")
                file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
                source = file.read_text(encoding="utf-8")
                assert all(f'"{word}"' in source for word in words if word.startswith("--"))
            else:
                assert (ROOT / first).is_file(), step["run"]
