"""The debugger's prompt: gdb's and rocgdb's words if they have one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

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
    """Runs the prompt; at a terminal with completion, and with the history of earlier sessions, if the host has readline."""
    if not sys.stdin.isatty():
        prompt.use_rawinput = False
        prompt.stdout = sys.stdout
        prompt.run()
        return
    with _history():
        prompt.run()


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Reads the history of earlier sessions, and writes it at the end. A file that cannot be read or written is left out."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "simgpu")
    readline.set_history_length(HISTORY)
    readline.set_completer_delims(" \t\n")
    with contextlib.suppress(OSError):
        readline.read_history_file(state / "debug_history")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            state.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(state / "debug_history")
