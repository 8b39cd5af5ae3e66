"""The debugger's prompt: gdb's and rocgdb's words if they have one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

from simgpu.tools.debug.looking import Looking
from simgpu.tools.debug.running import RunningCommands

HISTORY = 1000


class Prompt(RunningCommands, Looking):
    """A prompt with all commands."""


def carry_out(prompt: Prompt, commands: Iterable[str]) -> bool:
    """Carries out the commands in order and prints each as if it had been typed; True if one ended the session."""
    for command in commands:
        prompt.output(f"{prompt.prompt}{command}")
        if prompt.onecmd(command):
            return True
    return False


def interactive(prompt: Prompt) -> None:
    """Runs the prompt with history and completion, if the host has them."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_history_length(HISTORY)
        readline.set_completer_delims(" \t\n")
    if not sys.stdin.isatty():
        prompt.use_rawinput = False
        prompt.stdout = sys.stdout
    prompt.run()
