"""Commands of the prompt that show the workgroup's state, and where values came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.breakpoints import SPECIAL, RegisterNames
from simgpu.debugger.locals import local_values
from simgpu.debugger.named import element
from simgpu.hardware.errors import LaunchError
from simgpu.tools.debug import values, views
from simgpu.tools.debug.commands import Commands
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.console import show

if TYPE_CHECKING:
    from simgpu.debugger.flow.why import Why


class Looking(Commands):
    """Commands that show registers, tiles, LDS and memory, and that trace values back to the instructions that made them."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._followed: dict[tuple[int, int, int], Why] = {}  # by workgroup
        self._listed: tuple[str, str, int] | None = None  # of the last `list`: the wave's line, the file and the middle shown

    def do_where(self, text: str) -> None:
        """where: shows the wave's place, instruction and source line."""
        self.output(views.position_line(self.debugger))

    def do_backtrace(self, text: str) -> None:
        """backtrace: the functions that the wave is in, inlined or called, innermost first."""
        for number, line in enumerate(views.frames(self.debugger)):
            self.output(f"#{number}  {line}")

    def do_frame(self, text: str) -> None:
        """frame [N]: one of them and its line of source (default: the innermost)."""
        frames = list(views.frames(self.debugger))
        if not (text or "0").isdecimal() or int(text or 0) >= len(frames):
            raise LaunchError(f"frame {text}: the frames are 0 to {len(frames) - 1}")
        line = frames[int(text or 0)]
        self.output(f"#{text or 0}  {line}")
        self._lines(views.source(self.subject.folders, line.rpartition(" at ")[2], 1))

    def do_list(self, text: str) -> None:
        """list [N | FILE:N]: ten lines of source around this one, or around line N; again: the ten after them."""
        here = self.debugger.code.line(self.debugger.record())
        file, middle = here.rpartition(":")[0], int(here.rpartition(":")[2] or 0)
        if text:
            name, _, number = text.rpartition(":")
            if not number.isdecimal():
                raise LaunchError(f"list {text}: give a line, as 25 or k.hip:25")
            file, middle = name or file, int(number)
        elif self._listed is not None and self._listed[0] == here:
            file, middle = self._listed[1], self._listed[2] + views.LISTED
        shown = list(views.source(self.subject.folders, f"{file}:{middle}", views.LISTED, here))
        if not shown:
            why = f"there is no line {middle} of {file} on this machine" if file else "the code has no line table"
            raise LaunchError(f"{why}; `disassemble` shows instructions")
        self._listed = here, file, middle
        self._lines(shown)

    def do_disassemble(self, text: str) -> None:
        """disassemble [N]: instructions around this one, N of them."""
        count = self._count(text) if text else 12
        self._lines(views.code(self.debugger, count // 3, count - count // 3))

    def do_set(self, text: str) -> None:
        """set [var] WHAT = NUMBER: changes a register (v3, v3[5] for a lane, s4, exec, scc), a variable, or an element of an array
        (C[4,22]); $ before a name is as in gdb. Going back runs the launch again without the change."""
        from simgpu.debugger.assign import assign

        target, equals, value = text.removeprefix("var ").partition("=")
        if not equals or not target.strip() or not value.strip():
            raise LaunchError("set [var] WHAT = NUMBER, as `set $v3[5] = 1.5` or `set var i = 7`")
        assign(self.debugger, target, value)
        self.show_value(target.strip().removeprefix("$") if target.strip() != "scc" else "scc")

    def names(self) -> list[str]:
        """Returns the names that arguments of commands may have: variables, arrays, special registers."""
        return [*(each.name for each in local_values(self.debugger)), *self.debugger.names, *SPECIAL]

    def do_display(self, text: str) -> None:
        """display [/F] WHAT: prints it (as `print`) now and at every stop; without WHAT, all displays now."""
        if text:
            self.show_value(text)
            self.displays[max(self.displays, default=0) + 1] = text
        else:
            self._show_displays()

    def do_undisplay(self, text: str) -> None:
        """undisplay [N]: forgets a display, or all."""
        if not text:
            self.displays.clear()
        elif self.displays.pop(self._count(text), None) is None:
            raise LaunchError(f"no display {text}: there are {', '.join(map(str, self.displays)) or 'none'}")

    def do_waves(self, text: str) -> None:
        """waves: shows the place of each wave of the workgroup; * marks the selected one."""
        for wave in range(self.debugger.waves):
            self.output(f"{'*' if wave == self.debugger.wave else ' '} {views.position_line(self.debugger, wave)}")

    def do_wave(self, text: str) -> None:
        """wave N: selects another wave (gdb: thread)."""
        if text:
            self.debugger.select(self._count(text))
        self.output(views.position_line(self.debugger))

    def do_lanes(self, text: str) -> None:
        """lanes: shows the active lanes (EXEC), VCC and SCC."""
        from simgpu.engine.finding import lane_ranges, lanes_of

        snapshot = self.debugger.snapshot()
        self.output(f"active: {lane_ranges(lanes_of(snapshot.exec)) or 'none'}")
        self.output(f"exec {snapshot.exec:#018x}  vcc {snapshot.vcc:#018x}  scc {snapshot.scc}")

    def do_info(self, text: str) -> None:
        """info breakpoints | waves | lanes | locals | registers [NAMES] | operands | display | line | wave."""
        what, _, rest = text.partition(" ")
        actions: dict[str, Callable[[], None]] = {
            "breakpoints": lambda: self._lines(views.breakpoint_lines(self.debugger)),
            "watchpoints": lambda: self._lines(views.breakpoint_lines(self.debugger)),
            "waves": lambda: self.do_waves(""),
            "threads": lambda: self.do_waves(""),
            "lanes": lambda: self.do_lanes(""),
            "locals": self._locals,
            "line": lambda: self.do_where(""),
            "wave": lambda: self.do_where(""),
            "registers": lambda: self._registers(rest.split()) if rest else self._lines(views.all_registers(self.debugger)),
            "operands": lambda: self._registers(self._operands()),
            "display": lambda: self._lines([f"{number}: {what}" for number, what in self.displays.items()]),
        }
        found = [name for name in actions if what and name.startswith(what)]
        if not found:
            raise LaunchError(f"info {what or '...'}: {', '.join(actions)}")
        actions[found[0]]()

    def _operands(self) -> list[str]:
        """Returns the registers of the next instruction."""
        from simgpu.hardware.isa.code.operands import register_text
        from simgpu.hardware.isa.instruction import Reg

        own = self.debugger.snapshot().instruction.args.values()
        return list(dict.fromkeys(register_text(reg) for reg in own if isinstance(reg, Reg)))

    def _registers(self, names: list[str]) -> None:
        for name in names:
            self._lines(views.registers(self.debugger, name, ""))

    def _locals(self) -> None:
        from simgpu.debugger.locals import local_values
        from simgpu.debugger.marks import marks
        from simgpu.debugger.variables import assigned_variables

        if marks(self.debugger.kernel.module.code):
            for found in assigned_variables(self.debugger):
                self._lines(views.variable(found))
            return
        active, every = self.debugger.snapshot().exec, local_values(self.debugger)
        for each in every:
            if not each.is_global:
                where = f"  (in {each.function})" if each.function else ""
                self.output(f"{each.name} = {values.summary(each, active)}{where}")
        if not every:
            self.output("No locals: the kernel was compiled without -g.")

    def do_print(self, text: str) -> None:
        """print[/x|/d|/u|/f|/h] WHAT: prints a value. WHAT: a variable (i, i[3] of lane 3; t[3], s.x, p->x, *p, *p@4; of Triton
        acc, acc[3,0:4]); registers (v17, v[4:7], s[8:9]) as hexadecimal, i32, u32, f32 or f16 halves; an element (C[3,5]); or
        an expression (f32(v17[3]) * 2)."""
        self.show_value(text)

    def show_value(self, text: str) -> None:
        form, rest = _form(text)
        if not rest:
            raise LaunchError("print WHAT: a register, an element or an expression")
        if self._print_variable(rest, form):
            return
        if rest.split("[")[0].strip() in self.debugger.names:
            address, found = self.debugger.element(rest)
            self.output(f"{rest} = {views.number(found[()], form)} at {address:#x}")
            return
        if re.fullmatch(r"\$?([sva]\d+|[sva]\[\d+:\d+\]|vcc|exec|m0)(\[\d+\])?", rest):
            self._lines(views.registers(self.debugger, rest, form))
            return
        self._lines(views.value(self.debugger, rest, form))

    def _print_variable(self, text: str, form: str) -> bool:
        """Prints a variable of the source, if the text names one. An element of a tensor that was passed takes precedence."""
        from simgpu.debugger.locals import object_named
        from simgpu.debugger.marks import marks
        from simgpu.debugger.variables import variables

        name, _, part = text.partition("[")
        name = name.strip()
        if part and name in self.debugger.names:
            return False
        if any(mark.name == name for mark in marks(self.debugger.kernel.module.code)):
            (found,) = variables(self.debugger, [name])
            self._lines(views.variable(found, part.rstrip().removesuffix("]")))
            return True
        held = object_named(self.debugger, text)
        if held is not None:
            self._lines(values.lines(held, self.debugger.snapshot().exec, form))
        return held is not None

    def do_lane(self, text: str) -> None:
        """lane apply L[-L] print[/F] REGISTER: prints the register in some lanes (rocgdb)."""
        match = re.fullmatch(r"apply\s+(\d+)(?:-(\d+))?\s+(?:print|p)(/\w)?\s+(\S+)", text)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < 64:
            raise LaunchError("lane apply L[-L] print[/F] REGISTER, as `lane apply 0-3 print/f v17`")
        for lane in range(int(match[1]), int(match[2] or match[1]) + 1):
            self._lines(views.registers(self.debugger, f"{match[4]}[{lane}]", (match[3] or "")[1:]))

    def do_tile(self, text: str) -> None:
        """tile REGISTERS OPERAND MFMA [at rows R, cols C] [against M]: shows the matrix that registers hold. Example: `tile
        a[0:3] D v_mfma_f32_16x16x4f32`. Rows and columns place it in a matrix; M, one of the operator's, is shown next to
        it."""
        from simgpu.tools.matrix.trace_tile import Declaration, TileComparison

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
            show(*TileComparison.of(declared, self.debugger.snapshot(), reference, 1e-5).parts())
        else:
            self._lines(views.matrix(declared.tile(self.debugger.snapshot()), declared.row0, declared.column0))

    def do_who(self, text: str) -> None:
        """who REGISTER: shows the instruction that wrote it last before this moment: `who v17[3]`, `who s4`."""
        word = self._word(text)
        place = self._why().writer(word, self.debugger.wave, self.debugger.wave_place().retired)
        if place is None:
            self.output(f"nothing wrote {text} before")
            return
        record = self._why().record_at(place)
        code = self.debugger.code
        self.output(f"{place}  {code.address(record)}  {code.text(record)}  {code.line(record)}".rstrip())

    def do_why(self, text: str) -> None:
        """why WHAT: shows where a value came from, as a tree. WHAT: a register's lane at this moment (v17[3], s4), or an
        element as the workgroup leaves it (C[404,622]; 0x1000020840:f16, if it has no name)."""
        from simgpu.tools.debug.tree import Tree

        why = self._why()
        if text.split("[")[0].strip() in self.debugger.names or text.startswith("0x"):
            address, kind = element(self.debugger.names, text)
            self.debugger.memory(address, kind.itemsize)  # raises if the address is not allocated
            root = why.memory(address, kind.itemsize)
        else:
            root = why.register(self._word(text), self.debugger.wave, self.debugger.wave_place().retired)
        self._lines(Tree(self.debugger).lines(root))

    def _word(self, text: str) -> tuple[str, int, int]:
        wanted = RegisterNames.parse(text)
        if wanted.reg.count != 1 or (wanted.lane is None and wanted.reg.file != "s"):
            raise LaunchError(f"{text!r}: one register of one lane, as v17[3] or s4")
        return wanted.reg.file, wanted.reg.index, wanted.lane or 0

    def _why(self) -> Why:
        """Returns the data flow of the whole run of the workgroup in focus, kept until another workgroup is in focus."""
        group = self.debugger.replay.group
        if group not in self._followed:
            from simgpu.debugger.flow.why import Why

            self._followed = {group: Why(self.debugger)}
        return self._followed[group]

    def do_lds(self, text: str) -> None:
        """lds OFFSET [TYPE [SHAPE]]: shows a part of the workgroup's LDS: `lds 0x2000 f16 64x32`."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise LaunchError("lds OFFSET [TYPE [SHAPE]], as `lds 0x2000 f16 64x32`")
        self._lines(views.shared_array(self.debugger, _address(words[0]), *(words[1:] + ["u32", "16"][len(words) - 1 :])))

    def do_x(self, text: str) -> None:
        """x ADDRESS|ELEMENT [TYPE [SHAPE]]: shows device memory: `x C[3,0] f32 8`, `x 0x1000000000 u32 64`."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise LaunchError("x ADDRESS [TYPE [SHAPE]], as `x 0x1000000000 f32 64` or `x C[3,0] f32 8`")
        address = self.debugger.element(words[0])[0] if "[" in words[0] else _address(words[0])
        kind = array_type(words[1] if len(words) > 1 else "u32", self.debugger.kernel.module.device.arch)
        shape = views.extents(words[2] if len(words) > 2 else "16")
        raw = self.debugger.memory(address, kind.itemsize * int(np.prod(shape)))
        self._lines(views.array(np.frombuffer(raw, kind).reshape(shape), address))


def _form(text: str) -> tuple[str, str]:
    """Splits `/f v17` into the format letter and the rest."""
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
