"""The documents: what they name exists, what exists is named, and what they show as runnable runs."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from at_infer.cli import app

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTIONS = {name: {word for p in command.params for word in p.opts} | {"--help"} for name, command in COMMANDS.items()}

# Added to the commands of runnable blocks: the last value of an option counts.
TINY = {
    "generate": "--rows 600 300 600",
    "train": "--width 8 --heads 2 --layers 1 --max-steps 20 --threads 1",
    "score": "--threads 1",
}


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    line: int
    language: str
    runnable: bool
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    found, opened, info = [], 0, ""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.startswith("```"):
            continue
        if not opened:
            opened, info = number, line.removeprefix("```")
        else:
            text = "\n".join(lines[opened : number - 1])
            found.append(Block(page, opened, info.split(" ")[0], "run" in info.split(" ")[1:], text))
            opened = 0
    assert not opened, f"{page.name}:{opened}: this block is not closed"
    return found


def inline_code(page: Path) -> str:
    """What stands between single backticks, a line each."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return "\n".join(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside))


def commands(text: str) -> Iterator[list[str]]:
    """The words after each `at-infer`, up to the end of that shell command."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for match in re.finditer(r"(?<![\w./'\[-])at-infer (?=[a-z])([^|;&#`]*)", line):
            yield match[1].split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    text = "\n".join(block.text for block in blocks(page)) + "\n" + inline_code(page)
    for command, *words in commands(text):
        if command in COMMANDS:
            for word in words:
                option = word.split("=")[0].rstrip(",.:)")
                if re.fullmatch(r"--?[a-z][a-z-]*", option):
                    assert option in OPTIONS[command], f"{page.name}: at-infer {command} has no {option}"
        else:  # pasted output may begin a sentence with the name of the project
            assert not words or not command.isalpha() or command in NOT_COMMANDS, f"{page.name}: at-infer {command}"


NOT_COMMANDS = {"has", "is", "needs", "version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_the_text_exist(page: Path) -> None:
    """Of some command, or of a benchmark."""
    known = {option for options in OPTIONS.values() for option in options} | {"--version"}
    for script in (ROOT / "benchmarks").rglob("*.py"):
        known |= set(re.findall(r"\"(--[a-z-]+)\"", script.read_text(encoding="utf-8")))
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", inline_code(page)):
        assert option in known, f"{page.name}: there is no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmarks_and_their_options_exist(page: Path) -> None:
    text = re.sub(r"\\\n", " ", "\n".join(block.text for block in blocks(page)) + "\n" + inline_code(page))
    for name, words in re.findall(r"python (?:-m )?(benchmarks[./][\w./]+)([^|;&#`\n]*)", text):
        path = ROOT / name.removesuffix(".py").replace(".", "/")
        sources = [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
        known = "".join(source.read_text(encoding="utf-8") for source in sources)
        for module in re.findall(r"^from (benchmarks\.\w+) import .*\barguments\b", known, re.MULTILINE):
            known += (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", words):
            assert f'"{option}"' in known, f"{page.name}: {name} has no {option}"


def test_every_command_is_in_the_readme() -> None:
    shown = {command for block in blocks(README) if block.language == "sh" for command, *_ in commands(block.text)}
    assert set(COMMANDS) <= shown, f"not in README.md: {sorted(set(COMMANDS) - shown)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        linked = page if not path else page.parent / path
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_text_exist(page: Path) -> None:
    folders = "at_infer|training|export|benchmarks|tests|docs|examples"
    for path in re.findall(rf"^((?:{folders})/[\w./-]*)", inline_code(page), flags=re.MULTILINE):
        assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_map_has_a_line_for_every_folder_that_names_its_files() -> None:
    lines = re.findall(r"^\| `([\w/]+/)` \|(.+)$", CONTRIBUTING.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {folder: set(re.findall(r"`(\w+)`", line.rpartition(" | ")[2])) for folder, line in lines}
    for part in ("at_infer", "training", "export"):
        for path in (ROOT / part).rglob("*.py"):
            folder = f"{path.parent.relative_to(ROOT)}/"
            known = path.stem.startswith("__") or path.stem in named.get(folder, set())
            assert known, f"CONTRIBUTING.md: {folder} has no {path.stem} in its line of the map"
    for folder, names in named.items():
        stale = [name for name in names if not (ROOT / folder / f"{name}.py").is_file() and name not in NOT_FILES]
        assert not stale, f"CONTRIBUTING.md: {folder} names files that do not exist: {stale}"


NOT_FILES = {"fit", "export_model", "open_engine", "push", "take"}  # named in the map to say what a file has


def tiny(script: str) -> str:
    """The same commands with the smallest settings."""
    lines = []
    for line in re.sub(r"\\\n", " ", script).splitlines():
        words = shlex.split(line, comments=True)
        extra = TINY.get(words[1], "") if words[:1] == ["at-infer"] else ""
        lines.append(f"{line} {extra}")
    return "\n".join(lines)


def run(block: Block, folder: Path, warm: Path) -> None:
    if block.language == "python":
        command = [str(warm / "python"), "-c", block.text]
    else:
        command = ["bash", "-euo", "pipefail", "-c", f"PATH={shlex.quote(str(warm))}:$PATH\n{tiny(block.text)}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{block}:\n{block.text}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def after_readme(tmp_path_factory: pytest.TempPathFactory, warm: Path) -> Path:
    """A folder in which the blocks of the README have run, one after another."""
    folder = tmp_path_factory.mktemp("readme")
    for block in blocks(README):
        if block.runnable:
            run(block, folder, warm)
    return folder


@pytest.mark.documents
def test_the_readme_runs(after_readme: Path) -> None:
    made = {path.name for path in after_readme.iterdir()}
    assert {"data", "ckpt.pt", "model.onnx", "model.associations.onnx", "scores.parquet"} <= made


@pytest.mark.documents
@pytest.mark.parametrize(
    "block", [b for page in PAGES if page != README for b in blocks(page) if b.runnable], ids=lambda block: str(block)
)
def test_the_other_pages_run_after_it(after_readme: Path, block: Block, warm: Path) -> None:
    run(block, after_readme, warm)
