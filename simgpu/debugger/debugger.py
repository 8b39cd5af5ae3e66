"""Interface of the debugger: stops, steps forward and backward, and a wave's contents. The prompt and editors use it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.armed import Point
from simgpu.debugger.breakpoints import Breakpoint, Maker
from simgpu.debugger.code import ReplayCode, line_number
from simgpu.debugger.focus import Focus
from simgpu.debugger.marks import settled_records
from simgpu.debugger.moment import Moment
from simgpu.debugger.named import NamedArray, named_buffers
from simgpu.debugger.native import points
from simgpu.debugger.place import WavePlace
from simgpu.debugger.replay import Halt, Replay, debugging
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError
from simgpu.machine.layout import Status

if TYPE_CHECKING:
    from simgpu.engine.device import Kernel
    from simgpu.engine.finding import Finding

ALL = 1 << 62  # number of stops to pass: more than there are


@dataclass(frozen=True)
class Stop:
    """A stop of the workgroup."""

    kind: str  # "step", "breakpoint", "watchpoint", "goto", "ended", "fault", "interrupted" or "beginning"
    place: WavePlace  # the moment
    breakpoints: tuple[Breakpoint, ...] = ()  # breakpoints and watchpoints that were hit
    message: str = ""  # description of these, of the fault or of the end


class Debugger(Moment):
    """Debugs one workgroup of a launch, forward and backward, any number of times.

    place: the moment at which it is stopped. wave: the wave that commands apply to. Device memory has its contents of that
    moment; `close` restores those from before the launch.
    """

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], *, group: Sequence[int] = (), source: str = "",
        names: dict[str, NamedArray] | None = None,
    ) -> None:  # fmt: skip
        check_geometry(kernel.info, geometry)
        kernel.check_buffers(args)
        self.kernel, self.geometry, self.args = kernel, geometry, list(args)
        self.source = source
        self.sources: Callable[[str], list[str] | None] = lambda name: None  # lines of a source file, None if it is not known
        self.names = named_buffers(kernel.arguments, args) if names is None else names
        self.breakpoints: dict[int, Breakpoint] = {}
        self._numbers = 0
        self._debugged = debugging(kernel)
        self._focus = Focus(kernel, geometry, args)
        self.replay: Replay
        self.wave = 0
        self.stop: Stop
        self._open(self._ids(group))

    def close(self) -> None:
        """Ends the session, and restores device memory as it was before the launch."""
        self.replay.close()
        self._focus.before.restore()

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # -- the workgroup -------------------------------------------------------------------------

    def _ids(self, group: Sequence[int]) -> tuple[int, int, int]:
        x, y, z = (*(int(i) for i in group), 0, 0, 0)[:3]
        groups = self.geometry.groups
        if len(group) > 3 or any(not 0 <= i < extent for i, extent in zip((x, y, z), groups, strict=True)):
            raise LaunchError(f"workgroup {','.join(map(str, group))} is not in the grid {','.join(map(str, groups))}")
        return x, y, z

    def _open(self, group: tuple[int, int, int]) -> None:
        memory = self._focus.memory_of(self.geometry.number(group))
        self.replay = Replay(self._debugged, self.geometry, self.args, group, memory, self._focus.whole)
        self.code = ReplayCode(self.replay, self.source)
        self._maker = Maker(self.replay, self.code, self.names)
        self._restart()
        self._move("beginning", WavePlace(group, 0, 0))
        self.wave = 0

    def focus(self, group: Sequence[int]) -> Stop:
        """Goes to the beginning of another workgroup. Breakpoints stay, except those at places of the old one."""
        wanted = self._ids(group)
        if wanted == self.replay.group:
            return self.goto(WavePlace(wanted, 0, 0))
        self.replay.close()
        self._open(wanted)
        kept, self.breakpoints = self.breakpoints, {}
        for each in kept.values():
            if "#" not in each.what:
                self._add(self._make(each.number, each.kind, each.what, each.condition, each.wave))
        return self.stop

    @property
    def initial_memory(self) -> str:
        """Text on how the memory at the workgroup's beginning was made."""
        return self._focus.how

    @property
    def place(self) -> WavePlace:
        """Current moment."""
        return self.stop.place

    def select(self, wave: int) -> None:
        """Makes commands apply to another wave."""
        self.wave = self._wave(wave)

    # -- running -------------------------------------------------------------------------------

    def _restart(self) -> None:
        self.replay.restart()
        self.replay.goals[:] = np.iinfo(np.int64).max
        for each in self.breakpoints.values():
            each.refresh(self.replay, begins=True)

    def _run(self, until: WavePlace | None, passes: int) -> tuple[Halt, int]:
        """Runs past `passes` stops to the next one, to a place, or to the end. Returns the last halt, and the number of stops that
        were passed."""
        used = 0
        if until is not None:
            self.replay.aim(until.wave, until.retired)
        try:
            while True:
                halt = self.replay.resume(passes - used)
                used += passes - used + 1 - self.replay.passes_left
                if halt.kind != "wave ended":
                    return halt, used
                if until is not None and halt.wave == until.wave:
                    return halt, used
        finally:
            if until is not None:
                self.replay.aim(until.wave, None)

    def _move(self, kind: str, until: WavePlace, message: str = "") -> Stop:
        """Runs forward to a place, past all stops. Raises LaunchError if it is never reached. kind, message: for the `Stop`."""
        halt, _ = self._run(until, ALL)
        at = self.replay.place(until.wave)
        if halt.kind == "fault" and at != until:
            raise LaunchError(f"{until} is never reached: {halt.message}; the last place is {at}")
        if at != until and halt.kind != "interrupted":
            raise LaunchError(f"{until} is never reached: w{until.wave} ends at {at}")
        self.wave = until.wave
        self.stop = Stop("interrupted" if halt.kind == "interrupted" else kind, self.replay.place(until.wave), (), message)
        return self.stop

    def _stop_of(self, halt: Halt, kind: str) -> Stop:
        """Returns the `Stop` of a halt, and makes its wave current. kind: the kind if no breakpoint was hit."""
        self.wave = halt.wave
        place, message = self.replay.place(halt.wave), halt.message
        hit = tuple(each for each in self.breakpoints.values() if each.is_hit(halt.points))
        for each in hit:
            each.hits += 1
        if hit:
            kind = hit[0].kind
            message = "; ".join(self._words(each, halt) for each in hit)
        elif halt.kind in ("ended", "fault", "interrupted"):
            kind = halt.kind
            message = message or ("the workgroup ended" if halt.kind == "ended" else "")
        elif halt.kind == "wave ended":
            message = f"wave {halt.wave} ended"
        self.stop = Stop(kind, place, hit, message)
        return self.stop

    def _words(self, each: Breakpoint, halt: Halt) -> str:
        words = f"{each.kind} {each.number}, {each.what}"
        if each.block is not None:
            before, after = each.values(halt.wave)
            words += f": {format_value(before)} -> {format_value(after)}"
        elif each.said:
            words += f": {each.words(halt.points)}"
        elif each.what == "nan":
            before_it = [at for at, inst in self.code if at + inst.size // 4 == self.record(halt.wave)]
            words += f": `{self.code.text(before_it[-1])}` wrote NaN in lanes {each.lanes(halt.points)}"
        return words

    def _goes_on(self) -> None:
        if self.stop.kind == "fault":
            raise LaunchError("the kernel failed here: go back (reverse-step, reverse-continue), or goto another place")
        if self.replay.waves_left == 0:
            raise LaunchError("the workgroup ended: go back (reverse-step, reverse-continue), or goto another place")

    def step(self, count: int = 1, wave: int | None = None) -> Stop:
        """Runs `count` instructions of a wave. Other waves run in their turns. A breakpoint of any wave stops the run."""
        number = self._wave(wave)
        self._goes_on()
        if count < 1:
            raise LaunchError(f"{count} steps: give at least 1")
        at = self.stop.place if self.stop.place.wave == number else self.replay.place(number)
        until = WavePlace(at.group, number, at.retired + count)
        halt = self.replay.step(number, until.retired) if count == 1 else None
        if halt is not None and halt.kind == "arrived" and not halt.points:
            self.wave, self.stop = number, Stop("step", until)
            return self.stop
        if halt is None and self.replay.wave(number).status == Status.ENDED:
            raise LaunchError(f"wave {number} ended: select another (waves), or go back")
        if halt is None or (halt.kind == "wave ended" and halt.wave != number):
            halt, _ = self._run(until, 0)
        return self._stop_of(halt, "step")

    def next(self, wave: int | None = None) -> Stop:
        """Runs a wave to another source line of the same function, or out of it into its caller."""
        number = self._wave(wave)
        self._goes_on()
        here = self.record(number)
        line = self.code.line(here)
        within = self.code.function(here)
        others = [at for at, _ in self.code if at in within and self.code.line(at) not in ("", line)]
        if not line and not others:
            raise LaunchError("the file has no line table: step goes by instructions")
        return self._run_out(others, number)

    def finish(self, wave: int | None = None) -> Stop:
        """Runs a wave until its current function has returned. In the kernel itself, runs it to its s_endpgm."""
        number = self._wave(wave)
        self._goes_on()
        return self._run_out(self.code.endings(), number)

    def _run_out(self, records: list[int], wave: int) -> Stop:
        """Runs a wave to one of some records, or until its current function has returned. A kernel does not return."""
        within = self.code.function(self.record(wave))
        returns = [] if self.replay.launch.entry in within else [at for at in self.code.returns() if at in within]
        stop = self._run_until([*returns, *records], wave)
        return self.step(1, wave) if stop.kind == "step" and self.record(wave) in returns else stop

    def _run_until(self, records: list[int], wave: int) -> Stop:
        point = Point(points.always_test(self.replay.device.compiler), wave)
        for record in records:
            self.replay.add(record, point)
        try:
            while True:
                halt = self.replay.resume()
                if halt.kind != "wave ended" or halt.wave == wave:
                    return self._stop_of(halt, "step")
        finally:
            for record in records:
                self.replay.remove(record, point)

    def go_on(self) -> Stop:
        """Runs to the next breakpoint or watchpoint, or to the end (`continue`)."""
        self._goes_on()
        return self._stop_of(self._run(None, 0)[0], "breakpoint")

    def goto(self, place: WavePlace) -> Stop:
        """Goes to a place, forward or backward. If no wave reaches it, stays at the current moment and raises LaunchError."""
        if place.group != self.replay.group:
            self.focus(place.group)
        self._wave(place.wave)
        before = self.stop.place
        ahead = place.wave == before.wave and place.retired >= self.replay.retired_count(place.wave) and self.stop.kind != "fault"
        if not ahead or self.replay.waves_left == 0:
            self._restart()
        try:
            return self._move("goto", place)
        except LaunchError:
            self._restart()
            self._move("goto", before)
            raise

    def reverse_step(self, count: int = 1, wave: int | None = None) -> Stop:
        """Goes back by `count` instructions of a wave."""
        at = self.replay.place(self._wave(wave))
        if at.retired == 0:
            return self._beginning(at)
        stop = self.goto(WavePlace(at.group, at.wave, max(0, at.retired - count)))
        self.stop = replace(stop, kind="step") if stop.kind == "goto" else stop
        return self.stop

    def reverse_go_on(self) -> Stop:
        """Goes back to the last stop at a breakpoint or watchpoint before this moment, or to the beginning."""
        here, failed = self.stop.place, self.stop.kind == "fault"  # after a failure it is before the failed instruction
        self._restart()
        _, stops = self._run(None if failed else here, ALL)
        self._restart()
        if not stops:
            return self._beginning(WavePlace(here.group, here.wave, 0))
        return self._stop_of(self._run(None, stops - 1)[0], "breakpoint")

    def _beginning(self, at: WavePlace) -> Stop:
        self._restart()
        self._move("goto", at)
        self.stop = Stop("beginning", at, (), "no earlier stop: this is the beginning of the wave")
        return self.stop

    # -- breakpoints ---------------------------------------------------------------------------

    def breakpoint(self, where: str, condition: str = "", wave: int = -1) -> Breakpoint:
        """Adds a breakpoint before an instruction, or at findings. Raises LaunchError for unknown arguments.

        where: an address, a label, a source line, a place, "barrier", "nan", or "finding" with kinds (see `findings.KINDS`;
            default: errors)
        condition: an expression of `conditions`; not for a place, "nan" or findings
        wave: the only wave that it stops; -1 for all
        """
        if wave >= 0:
            self._wave(wave)
        made = self._make(self._numbers + 1, "breakpoint", where.strip(), condition.strip(), wave)
        self._numbers += 1
        return self._add(made)

    def watch(self, what: str) -> Breakpoint:
        """Adds a watchpoint: it stops when a register, bytes of LDS (lds[0x2000:16]) or an element of a buffer (C[3,5]) changed."""
        made = self._make(self._numbers + 1, "watchpoint", what.strip(), "")
        self._numbers += 1
        return self._add(made)

    def delete(self, number: int) -> None:
        """Deletes a breakpoint or watchpoint."""
        if number not in self.breakpoints:
            raise LaunchError(f"no breakpoint {number}: there are {', '.join(map(str, self.breakpoints)) or 'none'}")
        for record, point in self.breakpoints.pop(number).points:
            self.replay.remove(record, point)

    def _make(self, number: int, kind: str, what: str, condition: str, wave: int = -1) -> Breakpoint:
        if kind == "watchpoint":
            return self._maker.watch(number, what)
        if condition and (what == "nan" or "#" in what or what.startswith("finding")):
            raise LaunchError(f"break {what}: conditions are supported only for addresses, labels, lines and barriers")
        if what == "nan":
            return self._maker.nan(number)
        if what.split(None, 1)[0:1] == ["finding"]:
            return self._maker.findings(number, what, self.findings(what.removeprefix("finding")))
        if "#" in what:
            return self._at_place(number, WavePlace.parse(what, self.replay.group, self.wave))
        return self._maker.at(number, what, self._records(what), condition, wave)

    def _records(self, where: str) -> list[int]:
        """Returns the records that an address, a label, a line or "barrier" names."""
        if where == "barrier":
            return self.code.barriers()
        first, *more = self.code.copies(where)
        named = line_number(where) is not None
        settled = settled_records(self.code, int(self.code.line(first).rpartition(":")[2])) if named else []
        return settled or [first, *more]

    def _at_place(self, number: int, place: WavePlace) -> Breakpoint:
        here = self.stop
        if place.group != self.replay.group:
            raise LaunchError(f"{place} is of another workgroup: `goto` goes there")
        self.goto(place)
        record = self.record(place.wave)
        self.goto(here.place)
        self.stop = here
        self.wave = here.place.wave
        return self._maker.place(number, place, record)

    def _add(self, made: Breakpoint) -> Breakpoint:
        made.refresh(self.replay, begins=False)
        for record, point in made.points:
            self.replay.add(record, point)
        self.breakpoints[made.number] = made
        return made

    @contextmanager
    def excursion(self) -> Iterator[None]:
        """Frees the replay for other runs, without breakpoints, in a `with` block. Returns to this moment afterwards."""
        here, kept = self.stop, self.breakpoints
        for each in kept.values():
            for record, point in each.points:
                self.replay.remove(record, point)
        self.breakpoints = {}
        try:
            yield
        finally:
            wave = self.wave
            self._restart()
            self._move("goto", here.place)
            self.breakpoints = kept
            for each in kept.values():
                each.refresh(self.replay, begins=False)
                for record, point in each.points:
                    self.replay.add(record, point)
            self.stop, self.wave = here, wave

    def findings(self, kinds: str = "") -> list[Finding]:
        """Returns the findings of checked mode in the workgroup, in order of their places.

        kinds: separated by blanks or commas (default: all errors)
        """
        from simgpu.debugger.findings import findings, kinds_of  # loads checked mode

        wanted = kinds_of(kinds)
        with self.excursion():
            self.replay.restart()
            return findings(self.kernel, self.geometry, self.args, self.replay.group, wanted)

    def rerun(self, armed: Sequence[tuple[int, Point]], until: WavePlace | None) -> None:
        """Reruns the workgroup from its beginning with points at records, then returns to this moment.

        The rerun ends at `until`, at a stop of one of the points, or at the workgroup's end.
        """
        with closing(self._visits(armed, until)) as visits:
            next(visits, None)

    def _visits(self, armed: Sequence[tuple[int, Point]], until: WavePlace | None) -> Generator[Halt, None, None]:
        """Reruns the workgroup from its beginning to `until`. Yields at each stop of points at records, then returns to this
        moment."""
        with self.excursion():
            for record, point in armed:
                self.replay.add(record, point)
            try:
                self._restart()
                while (halt := self._run(until, 0)[0]).kind == "points":
                    yield halt
            finally:
                for record, point in armed:
                    self.replay.remove(record, point)

    def calls(self, wave: int | None = None) -> list[int]:
        """Returns the records of the s_swappc_b64 that called the functions that a wave is in, innermost first.

        Reruns the workgroup, and follows the wave's calls and returns up to this moment.
        """
        number = self._wave(wave)
        if self.code.part(self.record(number)) is self.code.info:
            return []
        calls, open_calls = set(self.code.calls()), list[int]()
        point = Point(points.always_test(self.replay.device.compiler), number)
        armed = [(record, point) for record in (*calls, *self.code.returns())]
        with closing(self._visits(armed, self.replay.place(number))) as visits:
            for _ in visits:
                record = self.record(number)
                if record in calls:
                    open_calls.append(record)
                elif open_calls and self.code.returns_to(record, self.snapshot(number).scalars) == open_calls[-1] + 1:
                    open_calls.pop()
        return open_calls[::-1]

    def log(self, where: str, values: Sequence[str], show: Callable[[WavePlace, list[Any]], None], condition: str = "") -> int:
        """Calls `show` with the values of expressions at each visit of a place, up to this moment. Returns the number of visits."""
        made = self._maker.at(0, where, self._records(where.strip()), condition)
        count = 0
        with closing(self._visits(made.points, self.stop.place)) as visits:
            for halt in visits:
                count += 1
                show(self.replay.place(halt.wave), [self.value(text, halt.wave) for text in values])
        return count


def format_value(value: bytes) -> str:
    """Returns a watched value as hexadecimal dwords, up to four."""
    parts = [value[at : at + 4] for at in range(0, len(value), 4)]
    words = [f"{int.from_bytes(part, 'little'):#0{2 + 2 * len(part)}x}" for part in parts]
    return " ".join(words[:4]) + (" ..." if len(words) > 4 else "")


def debug(
    kernel: Kernel, grid: int | Sequence[int] | None = None, block: int | Sequence[int] = 64, args: Sequence[object] = (),
    dynamic_lds: int = 0, *, global_size: int | Sequence[int] | None = None, group: Sequence[int] = (), source: str = "",
    names: dict[str, NamedArray] | None = None,
) -> Debugger:  # fmt: skip
    """Returns a debugger of one workgroup of a launch, at its beginning. Takes the arguments of `Kernel.launch`, and:

    group: the workgroup (default: the first)
    source: the kernel's assembly, for labels that the file lacks
    names: arrays that name elements (default: the buffers with a type, by their arguments)

    Raises LaunchError for arguments that a launch cannot have.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((16, 16)), gpu.empty((16, 16))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(16, 16, 16, target="mi300x")), gpu, x, x, y)
    >>> debugger = debug(run.kernel, **run.call)   # the launch again, stopped before its first instruction
    >>> str(debugger.step(3).place)
    'wg(0,0,0) w0 #3'
    """
    return Debugger(kernel, Geometry.of(grid, block, dynamic_lds, global_size), args, group=group, source=source, names=names)
