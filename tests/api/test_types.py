"""Type checkers of other projects see all types: `make lint` checks consumer.py, strictly and without any Any."""

import ast
import tomllib
from pathlib import Path

import at_infer

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).with_name("consumer.py")


def test_mypy_checks_the_consumer_strictly_and_allows_no_any() -> None:
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert mypy["strict"]
    assert str(CONSUMER.relative_to(ROOT)) in mypy["files"]
    own = [one for one in mypy["overrides"] if "tests.api.consumer" in one["module"]]
    assert own == [{"module": "tests.api.consumer", "disallow_any_expr": True}]


def test_the_consumer_uses_every_public_name() -> None:
    tree = ast.parse(CONSUMER.read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {*at_infer.__all__} <= used
