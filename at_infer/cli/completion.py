"""`at-infer completion`: the script with which a shell completes commands, options and values."""

import os
from typing import Annotated, Literal

import typer

COMPLETE_VARIABLE = "_AT_INFER_COMPLETE"
"""With it in the environment, `at-infer` answers a shell instead of running a command."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")],
) -> None:
    """Print a shell completion script.

    [bold]Examples[/bold]

      at-infer completion bash > ~/.local/share/bash-completion/completions/at-infer

      at-infer completion zsh > ~/.zfunc/_at-infer        [dim](~/.zfunc in fpath, before compinit)[/dim]

      at-infer completion fish > ~/.config/fish/completions/at-infer.fish
    """
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="at-infer", complete_var=COMPLETE_VARIABLE, shell=shell))


def answer_shells() -> None:
    """Register what answers a shell that asks for completions, which takes time that other commands do not spend."""
    if COMPLETE_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
