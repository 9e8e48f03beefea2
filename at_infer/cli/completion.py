"""`at-infer completion`: the script with which a shell completes commands, options and values."""

import os
from typing import Annotated, Literal

import typer

COMPLETE_VARIABLE = "_AT_INFER_COMPLETE"
"""With it in the environment, `at-infer` answers a shell instead of running a command."""
ZSH_ENTRY = """\
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _at_infer_completion "$@"
else
  compdef _at_infer_completion at-infer
fi"""
"""zsh loads a file of fpath at the first Tab, which typer's script would only use to register itself."""


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

    script = get_completion_script(prog_name="at-infer", complete_var=COMPLETE_VARIABLE, shell=shell)
    print(script.replace("compdef _at_infer_completion at-infer", ZSH_ENTRY) if shell == "zsh" else script)


def answer_shells() -> None:
    """Register what answers a shell that asks for completions, which takes time that other commands do not spend."""
    if COMPLETE_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
