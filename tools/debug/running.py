"""Commands of the prompt that run the workgroup, forward and back, and that set breakpoints."""

from __future__ import annotations

import re

import numpy as np

from simgpu.debugger.breakpoints import Breakpoint
from simgpu.debugger.code import line_number
from simgpu.debugger.place import WavePlace
from simgpu.hardware.errors import LaunchError
from simgpu.tools.debug import views
from simgpu.tools.debug.commands import Commands
from simgpu.tools.shared.parser import split_at_commas


class RunningCommands(Commands):
    """Commands for steps, places, breakpoints."""

    def do_step(self, text: str) -> None:
        """step [N]: executes one instruction of the wave, or N."""
        self._print_stop(self.debugger.step(self._count(text)))

    def do_next(self, text: str) -> None:
        """next: runs the wave to another source line, over calls."""
        self._print_stop(self.debugger.next())

    def do_continue(self, text: str) -> None:
        """continue: runs to the next breakpoint or watchpoint, or to the end. Ctrl-C stops at the next jump."""
        self._print_stop(self.debugger.go_on())

    def do_finish(self, text: str) -> None:
        """finish: runs the wave until its function has returned; in the kernel itself, to its s_endpgm."""
        self._print_stop(self.debugger.finish())

    def do_goto(self, text: str) -> None:
        """goto PLACE: goes to a place in the run, forward or back. PLACE: wg(7,0,0) w0 #52311, or w0 #52311, or #52311 of this
        wave."""
        self._print_stop(self.debugger.goto(WavePlace.parse(text, self.debugger.replay.group, self.debugger.wave)))

    def do_reverse_step(self, text: str) -> None:
        """reverse-step [N]: steps the wave back by one instruction, or by N."""
        self._print_stop(self.debugger.reverse_step(self._count(text)))

    def do_reverse_continue(self, text: str) -> None:
        """reverse-continue: runs back to the last stop at a breakpoint or watchpoint, or to the beginning."""
        self._print_stop(self.debugger.reverse_go_on())

    def do_workgroup(self, text: str) -> None:
        """workgroup [X,Y,Z]: shows this one and how it gets its memory, or goes to the start of another."""
        if text:
            try:
                group = [int(part) for part in text.strip("()").split(",")]
            except ValueError:
                raise LaunchError(f"{text!r} is no workgroup: give 7,0,0") from None
            self._print_stop(self.debugger.focus(group))
        self.output(f"workgroup {','.join(map(str, self.debugger.replay.group))}: {self.debugger.initial_memory}")

    # -- breakpoints ---------------------------------------------------------------------------

    def do_break(self, text: str) -> None:
        """break WHERE [wave N] [if CONDITION]: stops before an instruction. WHERE: 0x1c, NAME+0x1c, a label, a source line, a
        place (w0 #52311), barrier, nan (after an instruction that writes one), or finding [KIND ...] (a finding of checked mode
        in this workgroup: wait, race, uninitialized, bounds, overflow ...; default: errors). CONDITION: as any(f32(v17) > 100)
        and s4 == 7; s4, s[4:5], v17[3], a0, vcc, exec, m0, scc, wave, f32 f16 bf16 i32 isnan abs any all, arithmetic,
        comparisons, and or not."""
        self._set_breakpoint(text)

    def do_tbreak(self, text: str) -> None:
        """tbreak WHERE [wave N] [if CONDITION]: a breakpoint that stops once."""
        self.temporary.add(self._set_breakpoint(text).number)

    def _set_breakpoint(self, text: str) -> Breakpoint:
        """Sets the breakpoint that `break` or `tbreak` asks for, and prints it."""
        where, _, condition = text.partition(" if ")
        match = re.fullmatch(r"(.*?)\s+wave\s+(\d+)", where.strip())
        wave = int(match[2]) if match else -1
        where = match[1] if match else where
        if not where.strip():
            raise LaunchError("break WHERE: an address, a label, a source line, a place, barrier or nan")
        made = self.debugger.breakpoint(where, condition, wave)
        self._announce(made)
        return made

    def _announce(self, made: Breakpoint) -> None:
        """Prints a new breakpoint: its instruction, and its line if that is not the one that was asked for."""
        records = sorted({record for record, _ in made.points})
        if made.what.startswith("finding"):
            self.output(f"breakpoint {made.number}: {made.what}, {len(made.findings) or 'none'} in this workgroup")
            return
        at = self.debugger.code.address(records[0]) if len(records) == 1 else f"{len(records)} instructions"
        wanted, line = line_number(made.what), ""
        if wanted is not None:
            line = self.debugger.code.line(records[0])
        slid = line and not line.endswith(f":{wanted}")
        self.output(f"breakpoint {made.number}: {made.what}, {at}" + (f", {line}" if slid else ""))

    def do_findings(self, text: str) -> None:
        """findings [KIND ...]: lists checked mode's findings in this workgroup. Default: all errors."""
        found = self.debugger.findings(text)
        for each in found:
            self.output(f"{each.when}  {each.kind}: {each.message}")
        if not found:
            self.output("nothing was found in this workgroup; `simgpu check` checks the whole launch")

    def do_watch(self, text: str) -> None:
        """watch WHAT: stops after it changed. WHAT: a register (v17, v17[3], s4), LDS (lds[0x2000:16]), an element (C[3,5])."""
        made = self.debugger.watch(text)
        self.output(f"watchpoint {made.number}: {made.what}")

    def do_delete(self, text: str) -> None:
        """delete [N]: deletes a breakpoint or watchpoint, or all."""
        for number in [self._count(text)] if text else list(self.debugger.breakpoints):
            self.debugger.delete(number)
            self.temporary.discard(number)

    def do_log(self, text: str) -> None:
        """log WHERE, EXPR[, EXPR ...] [if CONDITION]: prints the values at each visit up to here."""
        wanted, _, condition = text.partition(" if ")
        where, *values = [part.strip() for part in split_at_commas(wanted)]
        if not values:
            raise LaunchError("log WHERE, EXPR: give an expression to print, as `log loop, s4, f32(v17[3])`")

        def tell(place: WavePlace, found: list[object]) -> None:
            self.output(f"{place}  " + "  ".join(f"{name} = {_short(value)}" for name, value in zip(values, found, strict=True)))

        count = self.debugger.log(where, values, tell, condition)
        self.output(f"{count} visit{'' if count == 1 else 's'} before this moment")


def _short(value: object) -> str:
    return f"{len(value)} lanes" if isinstance(value, np.ndarray) else views.number(value, "")
