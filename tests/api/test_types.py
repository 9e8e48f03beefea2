"""Type checkers of other projects see all types."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import at_infer

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).with_name("consumer.py")


@pytest.mark.slow
def test_a_strict_project_that_uses_every_public_name_has_no_error_and_no_any(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    shutil.copy(CONSUMER, tmp_path / "consumer.py")
    words = ["--strict", "--disallow-any-expr", "--follow-imports=silent", "--config-file=", "consumer.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_uses_every_public_name() -> None:
    tree = ast.parse(CONSUMER.read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {*at_infer.__all__} <= used
