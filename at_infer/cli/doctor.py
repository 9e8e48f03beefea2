"""`at-infer doctor`: what this machine has, and which commands will work on it."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from at_infer.cli.terminal import show
from at_infer.errors import AtInferError

if TYPE_CHECKING:
    from at_infer.measure.machine import Examined, Extra, Tried


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")] = False,
) -> None:
    """Show installed runtimes, which commands work on this machine, and how to enable the others.

    Each runtime is loaded in a separate process and runs a small model, because ONNX Runtime also lists providers that
    do not work.

    [bold]Example[/bold]: at-infer doctor
    """
    from at_infer.measure.doctor import examine

    machine = examine()
    existing = getattr(ctx.parent and ctx.parent.command, "commands", {})
    machine["commands"] = [row for row in machine["commands"] if row["command"].split()[0] in existing]
    if as_json:
        show(json.dumps(machine))
    else:
        _print(machine)
    if machine["broken"]:
        raise AtInferError(f"doctor: {machine['broken']}")


def _print(machine: "Examined") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, highlight=False, markup=False)  # extras are in brackets

    def section(title: str, rows: list[tuple[str, ...]]) -> None:
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
        )
        table.add_column(no_wrap=True)
        for _ in rows[0][1:]:
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()

    section("This machine", _facts(machine))
    tried: list[tuple[str, ...]] = [(name, _verdict(found)) for name, found in machine["providers"].items()]
    section("ONNX Runtime providers, by a small inference", tried)
    section("Extras", [(name, _packages(extra)) for name, extra in machine["extras"].items()])
    if machine["conflicts"]:
        section("Conflicts", [(line,) for line in machine["conflicts"]])
    section("Commands", [(f"at-infer {row['command']}", _verdict(row)) for row in machine["commands"]])


def _facts(machine: "Examined") -> list[tuple[str, ...]]:
    cpu, gpu = machine["cpu"], machine["gpu"]
    cores = f"{cpu['usable_cores']} of {cpu['cores']} cores"
    if cpu["core_quota"] is not None:
        cores += f", at most {cpu['core_quota']:g} at a time"
    features = cpu["features"]
    gpus = [f"{g['name']}, {g['memory_gb']} GB, compute capability {g['compute_capability']}" for g in gpu["devices"]]
    return [
        ("at-infer", machine["at_infer"]),
        ("Python", f"{machine['python']['version']} ({machine['python']['executable']})"),
        ("system", machine["system"]),
        ("CPU", f"{cpu['model']}, {cores}"),
        ("CPU features", "unknown" if features is None else ", ".join(f"{k} {_yes(v)}" for k, v in features.items())),
        ("memory", "unknown" if machine["memory_gb"] is None else f"{machine['memory_gb']} GB"),
        ("GPU", "; ".join(gpus) or f"none ({gpu['reason']})"),
        ("NVIDIA driver", gpu["driver"] or "none found"),
        *((name, _verdict(found)) for name, found in machine["core"].items()),
        ("installed as", " and ".join(map(" ".join, machine["runtime_packages"].items())) or "unknown package"),
        *(
            (title, _flavour(machine["tensorrt"][flavour]))
            for flavour, title in (("tensorrt", "TensorRT"), ("rtx", "TensorRT-RTX"))
        ),
    ]


def _verdict(found: "Tried") -> str:
    if found["works"]:
        difference = found.get("difference")
        return found.get("version") or ("yes" if not difference else f"yes, within {difference:.1g} of the CPU")
    return f"no: {found['reason']}" if found["reason"] else "not installed"


def _flavour(found: "Tried") -> str:
    """Version, and what became of a small plan."""
    plan = found.get("plan")
    if plan is None:
        return _verdict(found)
    if not plan["works"]:
        return f"{_verdict(found)}; a small plan fails: {plan['reason']}"
    ran = f"and runs one like the CPU (within {plan['difference']:.1g})" if plan["ran"] else "(not run: no GPU)"
    return f"{_verdict(found)}; builds a plan {ran}"


def _packages(extra: "Extra") -> str:
    there = [f"{name} {version}" for name, version in extra["packages"].items() if version]
    absent = [name for name, version in extra["packages"].items() if not version]
    return ", ".join(there) + (f"{'; ' if there else ''}without {', '.join(absent)}: {extra['get']}" if absent else "")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
