"""The debugger's prompt: gdb's and rocgdb's words where they have one."""

from __future__ import annotations

import cmd
import contextlib
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.breakpoints import Registers
from simgpu.debugger.named import element
from simgpu.debugger.place import Place
from simgpu.hardware.errors import LaunchError, SimError
from simgpu.tools.debug import views
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.console import show
from simgpu.tools.shared.errors import did_you_mean

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger, Stop
    from simgpu.debugger.flow.why import Why
    from simgpu.tools.debug.subject import Subject

SHORT = {
    "s": "step", "si": "step", "stepi": "step", "n": "next", "c": "continue", "b": "break", "d": "delete", "p": "print",
    "i": "info", "rs": "reverse-step", "rsi": "reverse-step", "reverse-stepi": "reverse-step", "rc": "reverse-continue",
    "fin": "finish", "q": "quit", "exit": "quit", "h": "help", "l": "list", "disassemble": "list", "thread": "wave",
    "bt": "where", "backtrace": "where", "wg": "workgroup",
}  # fmt: skip
HISTORY = 1000


class Prompt(cmd.Cmd):
    """Reads commands and prints what comes of them; an error is a line, and the prompt is back."""

    prompt = "(simgpu) "

    def __init__(self, debugger: Debugger, subject: Subject, output: Callable[[str], None] = print) -> None:
        super().__init__()
        self.debugger, self.subject, self.output = debugger, subject, output
        self.failed = False  # whether the last command was an error
        self._followed: dict[tuple[int, int, int], Why] = {}  # by workgroup

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Commands until quit or the end of the input; Ctrl-C at the prompt forgets the line."""
        self.intro = "\n".join(views.stopped(self.debugger, self.debugger.stop))
        while True:
            try:
                self.cmdloop(self.intro)
                return
            except KeyboardInterrupt:
                self.intro = ""
                self.output("")

    def onecmd(self, line: str) -> bool:
        """Carries out one command; True ends the loop."""
        self.failed = False
        if line.strip() == "EOF":
            return True
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
        """Repeats a step, as gdb does."""
        last = self.lastcmd.split()[:1]
        return self.onecmd(self.lastcmd) if last and SHORT.get(last[0], last[0]) in ("step", "next", "reverse-step") else False

    def commands(self) -> list[str]:
        """The commands by name."""
        return [name[3:].replace("_", "-") for name in dir(self) if name.startswith("do_")]

    def completenames(self, text: str, *unused: object) -> list[str]:
        return [name for name in self.commands() if name.startswith(text)]

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.output(line)

    def _stopped(self, stop: Stop) -> None:
        self._lines(views.stopped(self.debugger, stop))

    def _count(self, text: str) -> int:
        if text and not text.isdecimal():
            raise LaunchError(f"{text!r} is no number of times")
        return int(text or 1)

    # -- running -------------------------------------------------------------------------------

    def do_step(self, text: str) -> None:
        """step [N]: the wave executes one instruction, or N."""
        self._stopped(self.debugger.step(self._count(text)))

    def do_next(self, text: str) -> None:
        """next: the wave goes on to another source line, calls included."""
        self._stopped(self.debugger.next())

    def do_continue(self, text: str) -> None:
        """continue: on to the next breakpoint or watchpoint, or the end. Ctrl-C stops at the next jump."""
        self._stopped(self.debugger.go_on())

    def do_finish(self, text: str) -> None:
        """finish: the wave goes on to its s_endpgm."""
        self._stopped(self.debugger.finish())

    def do_goto(self, text: str) -> None:
        """goto PLACE: to a place in the run, forward or back: wg(7,0,0) w0 #52311, or w0 #52311, or #52311 of this wave."""
        self._stopped(self.debugger.goto(Place.parse(text, self.debugger.replay.group, self.debugger.wave)))

    def do_reverse_step(self, text: str) -> None:
        """reverse-step [N]: to where the wave had executed one instruction fewer, or N."""
        self._stopped(self.debugger.reverse_step(self._count(text)))

    def do_reverse_continue(self, text: str) -> None:
        """reverse-continue: back to the last stop at a breakpoint or watchpoint, or the beginning."""
        self._stopped(self.debugger.reverse_go_on())

    def do_workgroup(self, text: str) -> None:
        """workgroup [X,Y,Z]: which one this is and how it gets its memory; or another one, at its beginning."""
        if text:
            try:
                group = [int(part) for part in text.strip("()").split(",")]
            except ValueError:
                raise LaunchError(f"{text!r} is no workgroup: give 7,0,0") from None
            self._stopped(self.debugger.focus(group))
        self.output(f"workgroup {','.join(map(str, self.debugger.replay.group))}: {self.debugger.how}")

    # -- breakpoints ---------------------------------------------------------------------------

    def do_break(self, text: str) -> None:
        """break WHERE [wave N] [if CONDITION]: stops before an instruction. WHERE: 0x1c, NAME+0x1c, a label, a source line, a
        place (w0 #52311), barrier, or nan (behind what writes one). CONDITION: as any(f32(v17) > 100) and s4 == 7; s4, s[4:5],
        v17[3], a0, vcc, exec, m0, scc, wave, f32 f16 bf16 i32 isnan abs any all, arithmetic, comparisons, and or not."""
        where, _, condition = text.partition(" if ")
        match = re.fullmatch(r"(.*?)\s+wave\s+(\d+)", where.strip())
        wave = int(match[2]) if match else -1
        where = match[1] if match else where
        if not where.strip():
            raise LaunchError("break WHERE: an address, a label, a source line, a place, barrier or nan")
        made = self.debugger.breakpoint(where, condition, wave)
        records = sorted({record for record, _ in made.points})
        at = self.debugger.code.address(records[0]) if len(records) == 1 else f"{len(records)} instructions"
        self.output(f"breakpoint {made.number}: {made.what}, {at}")

    def do_watch(self, text: str) -> None:
        """watch WHAT: stops where it changed: a register (v17, v17[3], s4), LDS (lds[0x2000:16]), an element (C[3,5])."""
        made = self.debugger.watch(text)
        self.output(f"watchpoint {made.number}: {made.what}")

    def do_delete(self, text: str) -> None:
        """delete [N]: forgets a breakpoint or watchpoint, or all."""
        for number in [self._count(text)] if text else list(self.debugger.breakpoints):
            self.debugger.delete(number)

    def do_log(self, text: str) -> None:
        """log WHERE, EXPR[, EXPR ...] [if CONDITION]: the values at each visit from the beginning to here."""
        wanted, _, condition = text.partition(" if ")
        where, *values = [part.strip() for part in _split(wanted)]
        if not values:
            raise LaunchError("log WHERE, EXPR: give an expression to print, as `log loop, s4, f32(v17[3])`")

        def tell(place: Place, found: list[object]) -> None:
            self.output(f"{place}  " + "  ".join(f"{name} = {_short(value)}" for name, value in zip(values, found, strict=True)))

        count = self.debugger.log(where, values, tell, condition)
        self.output(f"{count} visit{'' if count == 1 else 's'} before this moment")

    # -- looking -------------------------------------------------------------------------------

    def do_where(self, text: str) -> None:
        """where: the place, the instruction, the line."""
        self.output(views.standing(self.debugger))

    def do_list(self, text: str) -> None:
        """list [N]: instructions around this one, N of them."""
        count = self._count(text) if text else 12
        self._lines(views.code(self.debugger, count // 3, count - count // 3))

    def do_waves(self, text: str) -> None:
        """waves: where each wave of the workgroup stands; * the one that commands are about."""
        for wave in range(self.debugger.waves):
            self.output(f"{'*' if wave == self.debugger.wave else ' '} {views.standing(self.debugger, wave)}")

    def do_wave(self, text: str) -> None:
        """wave N: have commands be about another wave (gdb: thread)."""
        if text:
            self.debugger.select(self._count(text))
        self.output(views.standing(self.debugger))

    def do_lanes(self, text: str) -> None:
        """lanes: the active lanes (EXEC), VCC and SCC."""
        from simgpu.engine.finding import lane_ranges, lanes_of

        snapshot = self.debugger.snapshot()
        self.output(f"active: {lane_ranges(lanes_of(snapshot.exec)) or 'none'}")
        self.output(f"exec {snapshot.exec:#018x}  vcc {snapshot.vcc:#018x}  scc {snapshot.scc}")

    def do_info(self, text: str) -> None:
        """info breakpoints | waves | lanes | registers [NAMES] | line | wave."""
        what, _, rest = text.partition(" ")
        actions: dict[str, Callable[[], None]] = {
            "breakpoints": lambda: self._lines(views.listed(self.debugger)),
            "watchpoints": lambda: self._lines(views.listed(self.debugger)),
            "waves": lambda: self.do_waves(""),
            "threads": lambda: self.do_waves(""),
            "lanes": lambda: self.do_lanes(""),
            "line": lambda: self.do_where(""),
            "wave": lambda: self.do_where(""),
            "registers": lambda: self._registers(rest),
        }
        found = [name for name in actions if what and name.startswith(what)]
        if not found:
            raise LaunchError(f"info {what or '...'}: {', '.join(actions)}")
        actions[found[0]]()

    def _registers(self, names: str) -> None:
        own = self.debugger.snapshot().instruction.args.values()
        from simgpu.hardware.isa.code.operands import register_text
        from simgpu.hardware.isa.instruction import Reg

        wanted = names.split() or list(dict.fromkeys(register_text(reg) for reg in own if isinstance(reg, Reg)))
        for name in wanted:
            self._lines(views.registers(self.debugger, name, ""))

    def do_print(self, text: str) -> None:
        """print[/x|/d|/u|/f|/h] WHAT: registers (v17, v[4:7], s[8:9]), as hexadecimal, i32, u32, f32 or f16 halves; an element
        (C[3,5]); or an expression (f32(v17[3]) * 2)."""
        form, rest = _form(text)
        if not rest:
            raise LaunchError("print WHAT: a register, an element or an expression")
        if rest.split("[")[0].strip() in self.debugger.names:
            address, found = self.debugger.element(rest)
            self.output(f"{rest} = {views.number(found[()], form)} at {address:#x}")
            return
        if re.fullmatch(r"\$?([sva]\d+|[sva]\[\d+:\d+\]|vcc|exec|m0)(\[\d+\])?", rest):
            self._lines(views.registers(self.debugger, rest, form))
            return
        self._lines(views.value(self.debugger, rest, form))

    def do_lane(self, text: str) -> None:
        """lane apply L[-L] print[/F] REGISTER: the register in some lanes (rocgdb)."""
        match = re.fullmatch(r"apply\s+(\d+)(?:-(\d+))?\s+(?:print|p)(/\w)?\s+(\S+)", text)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < 64:
            raise LaunchError("lane apply L[-L] print[/F] REGISTER, as `lane apply 0-3 print/f v17`")
        for lane in range(int(match[1]), int(match[2] or match[1]) + 1):
            self._lines(views.registers(self.debugger, f"{match[4]}[{lane}]", (match[3] or "")[1:]))

    def do_tile(self, text: str) -> None:
        """tile REGISTERS OPERAND MFMA [at rows R, cols C] [against M]: registers as the matrix that they hold: `tile a[0:3] D
        v_mfma_f32_16x16x4f32`. Rows and columns place it in a matrix; M is one of the operator's, beside which it is shown."""
        from simgpu.tools.matrix.trace_tile import Comparison, Declaration

        wanted, _, against = text.partition(" against ")
        words = wanted.split(maxsplit=2)
        if len(words) < 3:
            raise LaunchError("tile REGISTERS OPERAND MFMA: as `tile a[0:3] D v_mfma_f32_16x16x4f32 at rows 16, cols 0`")
        reference = None
        if against:
            if against.strip() not in self.subject.matrices:
                known = ", ".join(self.subject.matrices) or "none here"
                raise LaunchError(f"against {against.strip()}: the matrices are {known}")
            reference = self.subject.matrices[against.strip()]
        declared = Declaration.parse(f"{words[0]} is {words[1]} of {words[2]}", self.debugger.kernel.module.device.arch)
        if self.output is print:
            show(*Comparison.of(declared, self.debugger.snapshot(), reference, 1e-5).parts())
        else:
            self._lines(views.matrix(declared.tile(self.debugger.snapshot()), declared.row0, declared.column0))

    def do_who(self, text: str) -> None:
        """who REGISTER: the instruction that wrote it last before this moment: `who v17[3]`, `who s4`."""
        word = self._word(text)
        place = self._why().writer(word, self.debugger.wave, self.debugger.wave_place().retired)
        if place is None:
            self.output(f"nothing wrote {text} before")
            return
        record = self._why().record_at(place)
        code = self.debugger.code
        self.output(f"{place}  {code.address(record)}  {code.text(record)}  {code.line(record)}".rstrip())

    def do_why(self, text: str) -> None:
        """why WHAT: where it came from, as a tree: a register's lane at this moment (v17[3], s4), or an element as the workgroup
        leaves it (C[404,622])."""
        from simgpu.tools.debug.tree import Tree

        why = self._why()
        if text.split("[")[0].strip() in self.debugger.names:
            address, kind = element(self.debugger.names, text)
            root = why.memory(address, kind.itemsize)
        else:
            root = why.register(self._word(text), self.debugger.wave, self.debugger.wave_place().retired)
        self._lines(Tree(self.debugger).lines(root))

    def _word(self, text: str) -> tuple[str, int, int]:
        wanted = Registers.parse(text)
        if wanted.reg.count != 1 or (wanted.lane is None and wanted.reg.file != "s"):
            raise LaunchError(f"{text!r}: one register of one lane, as v17[3] or s4")
        return wanted.reg.file, wanted.reg.index, wanted.lane or 0

    def _why(self) -> Why:
        """Of the workgroup's whole run, which is followed once."""
        group = self.debugger.replay.group
        if group not in self._followed:
            from simgpu.debugger.flow.why import Why

            self._followed = {group: Why(self.debugger)}
        return self._followed[group]

    def do_lds(self, text: str) -> None:
        """lds OFFSET [TYPE [SHAPE]]: a part of the workgroup's LDS: `lds 0x2000 f16 64x32`."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise LaunchError("lds OFFSET [TYPE [SHAPE]], as `lds 0x2000 f16 64x32`")
        self._lines(views.shared(self.debugger, _address(words[0]), *(words[1:] + ["u32", "16"][len(words) - 1 :])))

    def do_x(self, text: str) -> None:
        """x ADDRESS|ELEMENT [TYPE [SHAPE]]: device memory, as `x C[3,0] f32 8` or `x 0x1000000000 u32 64`."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise LaunchError("x ADDRESS [TYPE [SHAPE]], as `x 0x1000000000 f32 64` or `x C[3,0] f32 8`")
        address = self.debugger.element(words[0])[0] if "[" in words[0] else _address(words[0])
        kind = array_type(words[1] if len(words) > 1 else "u32", self.debugger.kernel.module.device.arch)
        shape = views.extents(words[2] if len(words) > 2 else "16")
        raw = self.debugger.memory(address, kind.itemsize * int(np.prod(shape)))
        self._lines(views.array(np.frombuffer(raw, kind).reshape(shape), address))

    def do_quit(self, text: str) -> bool:
        """quit: ends the session."""
        return True

    def do_help(self, text: str) -> None:
        """help [COMMAND]: the commands, or one of them."""
        name = SHORT.get(text.strip(), text.strip())
        if not name:
            for command in self.commands():
                said = " ".join((getattr(self, f"do_{command.replace('-', '_')}").__doc__ or "").split())
                self.output(f"  {said.split('. ')[0].split(': WHERE')[0][:100]}")
            short = ", ".join(f"{key} {full}" for key, full in SHORT.items() if len(key) <= 3)
            self.output(f"An unambiguous beginning of a name will do; short: {short}")
            return
        if name not in self.commands():
            raise LaunchError(f"{name!r} is no command{did_you_mean(name, self.commands())}")
        self.output(" ".join((getattr(self, f"do_{name.replace('-', '_')}").__doc__ or "").split()))


def _split(text: str) -> list[str]:
    """Parts between commas that no bracket holds."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _short(value: object) -> str:
    return f"{len(value)} lanes" if isinstance(value, np.ndarray) else views.number(value, "")


def _form(text: str) -> tuple[str, str]:
    """The format letter and the rest of `/f v17`."""
    match = re.fullmatch(r"(?:/(\w+)\s+)?(.*)", text)
    assert match
    form = match[1] or ""
    if form and form not in views.FORMATS:
        raise LaunchError(f"/{form} is no format: /x hexadecimal, /d i32, /u u32, /f f32, /h f16 halves")
    return form, match[2].strip()


def _address(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise LaunchError(f"{text!r} is no address: give 0x2000") from None


def carry_out(prompt: Prompt, commands: Iterable[str]) -> bool:
    """Commands one after the other, each printed as if it had been typed; whether one ended the session."""
    for command in commands:
        prompt.output(f"{prompt.prompt}{command}")
        if prompt.onecmd(command):
            return True
    return False


def interactive(prompt: Prompt) -> None:
    """The prompt with history and completion, where the host has them."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_history_length(HISTORY)
        readline.set_completer_delims(" \t\n")
    if not sys.stdin.isatty():
        prompt.use_rawinput = False
        prompt.stdout = sys.stdout
    prompt.run()
