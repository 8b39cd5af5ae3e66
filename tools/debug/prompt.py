"""Prompt of the debugger: gdb's and rocgdb's words if they have one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.tools.debug.looking import Looking
from simgpu.tools.debug.running import RunningCommands

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


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
    """Runs the prompt; at a terminal with completion, and with the history of earlier sessions."""
    read: Callable[[str], str] = terminal(prompt).prompt if sys.stdin.isatty() else input
    prompt.run(read)


def terminal(prompt: Prompt) -> PromptSession[str]:
    """Returns a session at the terminal. Tab completes; arrow keys and Ctrl-R search the history."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Names(Completer):
        """Names of commands, then those of variables, arrays and registers."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            names, typed = prompt.completions(document.text_before_cursor)
            yield from (Completion(name, start_position=-typed) for name in names)

    file = _history_file()
    history = FileHistory(str(file)) if file else InMemoryHistory()
    return PromptSession(history=history, completer=Names(), complete_while_typing=False)


def _history_file() -> Path | None:
    """Returns the file of the history, None if it cannot be written."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "simgpu")
    file = folder / "debug_history"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file if os.access(file, os.R_OK | os.W_OK) else None
    except OSError:
        return None
