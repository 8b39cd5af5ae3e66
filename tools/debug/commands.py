"""Base class of the prompt's commands: the debugger, the output, and the reading of commands."""

from __future__ import annotations

import cmd
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from simgpu.hardware.errors import LaunchError, SimError
from simgpu.tools.debug import views
from simgpu.tools.shared.errors import did_you_mean

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger, Stop
    from simgpu.tools.cases.subject import Subject

SHORT = {
    "s": "step", "si": "step", "stepi": "step", "n": "next", "c": "continue", "b": "break", "d": "delete", "p": "print",
    "i": "info", "rs": "reverse-step", "rsi": "reverse-step", "reverse-stepi": "reverse-step", "rc": "reverse-continue",
    "fin": "finish", "q": "quit", "exit": "quit", "h": "help", "l": "list", "thread": "wave",
    "bt": "backtrace", "f": "frame", "wg": "workgroup", "tb": "tbreak",
}  # fmt: skip


class Commands(cmd.Cmd):
    """Reads commands and prints their results. An error prints one line, and the session goes on."""

    prompt = "(simgpu) "

    def __init__(self, debugger: Debugger, subject: Subject, output: Callable[[str], None] = print) -> None:
        super().__init__()
        self.debugger, self.subject, self.output = debugger, subject, output
        self.failed = False  # True if the last command was an error
        self.temporary: set[int] = set()  # numbers of breakpoints that stop once
        self.displays: dict[int, str] = {}  # arguments of `print` that every stop prints, by number

    # -- the loop ------------------------------------------------------------------------------

    def run(self, read: Callable[[str], str]) -> None:
        """Runs the lines that `read` returns for the prompt, until `quit` or EOFError. Ctrl-C discards the line."""
        self._lines(views.stop_lines(self.debugger, self.debugger.stop))
        while True:
            try:
                if self.onecmd(read(self.prompt)):
                    return
            except KeyboardInterrupt:
                self.output("")
            except EOFError:
                self.output("")
                return

    def onecmd(self, line: str) -> bool:
        """Runs one command. Returns True to end the loop."""
        self.failed = False
        try:
            return bool(super().onecmd(line))
        except SimError as error:
            self.failed = True
            self.output(" ".join(str(error).split()))
        return False

    def parseline(self, line: str) -> tuple[str | None, str | None, str]:
        word, _, rest = line.strip().partition(" ")
        word, _, form = word.partition("/")
        name = SHORT.get(word, word)
        if word and name not in self.commands():
            near = [command for command in self.commands() if command.startswith(word)]
            name = near[0] if len(near) == 1 else name
        return super().parseline(f"{name.replace('-', '_')} {f'/{form} ' if form else ''}{rest.strip()}".strip())

    def default(self, line: str) -> None:
        word = line.split()[0].replace("_", "-")
        raise LaunchError(f"{word!r} is no command{did_you_mean(word, self.commands())}; help lists them")

    def emptyline(self) -> bool:
        """Repeats the last command if it was a step, as gdb does on an empty line."""
        last = self.lastcmd.split()[:1]
        return self.onecmd(self.lastcmd) if last and SHORT.get(last[0], last[0]) in ("step", "next", "reverse-step") else False

    def commands(self) -> list[str]:
        """Returns the names of the commands."""
        return [name[3:].replace("_", "-") for name in dir(self) if name.startswith("do_")]

    def completions(self, line: str) -> tuple[list[str], int]:
        """Returns the names that may continue a line, and the length of the part that they replace."""
        before, _, word = line.rpartition(" ")
        known = self.names() if before.strip() else self.commands()
        return sorted({name for name in known if name.startswith(word)}), len(word)

    def names(self) -> list[str]:
        """Returns the names that arguments of commands may have."""
        raise NotImplementedError

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.output(line)

    def _print_stop(self, stop: Stop) -> None:
        """Prints a stop and the displays, and deletes the temporary breakpoints that it hit."""
        self._lines(views.stop_lines(self.debugger, stop))
        for each in stop.breakpoints:
            if each.number in self.temporary:
                self.temporary.discard(each.number)
                self.debugger.delete(each.number)
        self._show_displays()

    def _show_displays(self) -> None:
        """Prints each display by its number, or why it has no value at this place."""
        for number, wanted in self.displays.items():
            self.output(f"{number}: {wanted}")
            try:
                self.show_value(wanted)
            except SimError as error:
                self.output(" ".join(str(error).split()))

    def show_value(self, text: str) -> None:
        """Prints a value, as `print` does."""
        raise NotImplementedError

    def _count(self, text: str) -> int:
        if text and not text.isdecimal():
            raise LaunchError(f"{text!r} is no number of times")
        return int(text or 1)

    def do_quit(self, text: str) -> bool:
        """quit: ends the session."""
        return True

    def do_help(self, text: str) -> None:
        """help [COMMAND]: lists the commands, or explains one of them."""
        name = SHORT.get(text.strip(), text.strip())
        if not name:
            for command in self.commands():
                self._paragraph(re.split(r"\. |: WHERE", self._help_of(command))[0], "  ")
            short = ", ".join(f"{key} {full}" for key, full in SHORT.items() if len(key) <= 3)
            self._paragraph(f"Names may be shortened while they are unambiguous; short forms: {short}", "")
            return
        if name not in self.commands():
            raise LaunchError(f"{name!r} is no command{did_you_mean(name, self.commands())}")
        self._paragraph(self._help_of(name), "")

    def _help_of(self, command: str) -> str:
        return " ".join((getattr(self, f"do_{command.replace('-', '_')}").__doc__ or "").split())

    def _paragraph(self, text: str, indent: str) -> None:
        """Prints a paragraph that is wrapped at words, and indented after its first line."""
        self._lines(textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=f"{indent}    "))
