"""Completion of commands and options in the shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from toolsemble.cli.exit_codes import Exit
from toolsemble.errors import ToolConfigurationError

PROGRAM = "toolsemble"
"""The name under which the program is started."""
VARIABLE = "_TOOLSEMBLE_COMPLETE"
"""The variable by which a shell asks for completions."""
SHELLS = ("bash", "zsh", "fish")
"""The shells that can be set up."""

_STARTUP = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
_HOOK = {
    "bash": 'eval "$(toolsemble --show-completion bash)"',
    "zsh": 'eval "$(toolsemble --show-completion zsh)"',
    "fish": "toolsemble --show-completion fish | source",
}


def shell_of(name: str | None) -> str:
    """Give the shell that a person means, or uses; refuse one that cannot be completed in.

    >>> shell_of("zsh")
    'zsh'
    """
    shell = Path(os.environ.get("SHELL", "")).name if name in {None, "auto"} else str(name)
    if shell not in SHELLS:
        raise ToolConfigurationError(f"There is no completion for the shell {shell!r}; say one of {', '.join(SHELLS)}")
    return shell


def show(app: click.Command, shell: str) -> Exit:
    """Write the script that sets completion up."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - one of ours
    click.echo(kind(app, {}, PROGRAM, VARIABLE).source())
    return Exit.DONE


def install(shell: str) -> Exit:
    """Put a line into the file that the shell reads when it starts, unless it is there already."""
    file = Path(_STARTUP[shell]).expanduser()
    hook = _HOOK[shell]
    written = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if hook in written.splitlines():
        click.echo(f"{file} sets it up already.")
        return Exit.DONE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as end:
        end.write(f"{'' if written.endswith(chr(10)) or not written else chr(10)}{hook}\n")
    click.echo(f"Added one line to {file}; it works in the next shell that you start.")
    return Exit.DONE
