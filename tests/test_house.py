"""The house: each folder of at_infer imports only from those above it, in the order in which data pass through them."""

import ast
import re
from pathlib import Path

import pytest

from at_infer.cli.messages import OF_PARAMETERS, _options

ROOT = Path(__file__).parents[1] / "at_infer"
PACKAGES = ("at_infer", "training", "export")
FLOORS = (
    (
        "errors",
        "installed",
        "untrusted",
        "config",
        "choices",
        "output",
        "native_stderr",
        "interrupt",
        "memory",
        "threads",
        "training_options",
    ),
    ("models",),
    ("tables",),
    ("engines",),
    ("thresholds",),
    ("scoring",),
    ("incidents",),
    ("live",),
    ("cluster",),
    ("evaluation",),
    ("report",),
    ("measure",),
    ("datasets",),
    ("api",),
    ("cli",),
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
APART = {"live": {"cluster"}, "evaluation": {"live", "cluster"}, "report": {"live", "cluster"}}
"""Folders that stand side by side, although one is named before the other."""


def place(module: str) -> str | None:
    """The folder, or the file beside the folders, that a module is in; None for the package itself."""
    words = module.split(".")
    return words[1] if words[0] == "at_infer" and len(words) > 1 else None


def imported(path: Path) -> set[str]:
    """Modules of the project that a file imports, at its head or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts if node.module in PACKAGES else {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] in PACKAGES}


FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_imports_only_from_those_above_it(path: Path) -> None:
    own = place(".".join(["at_infer", *path.relative_to(ROOT).with_suffix("").parts]))
    assert own in FLOOR, f"{path}: stands in no folder of the house"
    for module in imported(path):
        other = place(module)
        if other not in FLOOR:  # a name of the package, or training and export, which ruff bans
            continue
        assert FLOOR[other] <= FLOOR[own], f"imports {module}"
        assert other not in APART.get(own, set()), f"imports {module}"


FOREIGN = {
    "training": set[str](),
    "export": {"training.model", "training.checkpoint", "training.discrepancy", "training.views"},
}
"""An export needs what builds the network again, and nothing that trains."""
OUTSIDE = sorted(path for name in ("training", "export") for path in (ROOT.parent / name).rglob("*.py"))


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_training_and_export_stand_below_the_commands_and_export_only_builds_networks(path: Path) -> None:
    own = path.relative_to(ROOT.parent).parts[0]
    for module in imported(path):
        assert place(module) not in ("api", "cli"), f"imports {module}"
        assert module.partition(".")[0] in ("at_infer", own) or module in FOREIGN[own], f"imports {module}"


LIBRARY = sorted(
    path
    for folder in (ROOT, ROOT.parent / "training", ROOT.parent / "export")
    for path in folder.rglob("*.py")
    if ROOT / "cli" not in path.parents
)


def raised_texts(path: Path) -> list[tuple[str, str]]:
    """Class and text of the errors that a file raises; what is filled in stands as {}."""
    return [
        (
            ast.unparse(node.exc.func),
            "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in text.values)
            if isinstance(text, ast.JoinedStr)
            else str(text.value),
        )
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for text in node.exc.args
        if isinstance(text, ast.JoinedStr | ast.Constant)
    ]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_errors_of_the_library_name_parameters_and_leave_options_to_the_command_line(path: Path) -> None:
    for kind, text in raised_texts(path):
        bare = re.sub(r"(at-infer [a-z]+|ray start)( [^;,)]*)?", "", text)
        assert not re.search(r"--[a-z]", bare), text
        label = text.partition(": ")[0].split(" ")
        begins = ["_".join(label[:count]) for count in range(1, len(label) + 1)]
        if kind in {one.__name__ for one in OF_PARAMETERS} and len(label) > 1:
            assert not _options().keys() & set(begins), text
