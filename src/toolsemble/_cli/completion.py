"""Shell completion of commands and options."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from toolsemble._cli.exit_codes import Exit
from toolsemble._vocabulary.errors import ToolConfigurationError

_STARTUP = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
_HOOK = {
    "bash": 'eval "$(toolsemble --show-completion bash)"',
    "zsh": 'eval "$(toolsemble --show-completion zsh)"',
    "fish": "toolsemble --show-completion fish | source",
}


def find_shell(name: str | None) -> str:
    """Return the named shell, or the person's; raise if it is not supported.

    >>> find_shell("zsh")
    'zsh'
    """
    shell = Path(os.environ.get("SHELL", "")).name if name in {None, "auto"} else str(name)
    if shell not in _HOOK:
        raise ToolConfigurationError(f"Completion does not support the shell {shell!r}; use one of {', '.join(_HOOK)}")
    return shell


def show(app: click.Command, shell: str, program: str, variable: str) -> Exit:
    """Print the completion script; the shell requests completions with an environment variable."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - find_shell checked it
    click.echo(kind(app, {}, program, variable).source())
    return Exit.DONE


def install(shell: str) -> Exit:
    """Add a line to the shell's startup file, unless it is already there."""
    file = Path(_STARTUP[shell]).expanduser()
    hook = _HOOK[shell]
    content = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if hook in content.splitlines():
        click.echo(f"Already installed in {file}.")
        return Exit.DONE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as end:
        end.write(f"{'' if content.endswith(chr(10)) or not content else chr(10)}{hook}\n")
    click.echo(f"Added one line to {file}; start a new shell to use it.")
    return Exit.DONE
