"""Collects the findings of a kernel and of a code object, from every path through the code."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from simgpu.checks.declared import excesses, registers_used
from simgpu.checks.lint.barriers import Uneven, lds_behind, uneven
from simgpu.checks.lint.causes import Case, group_by_cause, judge, order
from simgpu.checks.lint.conditions import Conditions
from simgpu.checks.lint.distances import Hazards, TooClose
from simgpu.checks.lint.flow import PathAnalysis, StraightBlocks, examine
from simgpu.checks.lint.gfx12.cases import verdicts
from simgpu.checks.lint.graph import NO_INSTRUCTION, NOT_FOLLOWED, Graph
from simgpu.checks.lint.lds_addresses import LdsAddresses
from simgpu.checks.lint.outstanding import UnwaitedAccess, Waits
from simgpu.checks.lint.registers import first
from simgpu.checks.lint.search import PathSearch
from simgpu.checks.lint.steps import LintStep
from simgpu.checks.lint.undefined import Definedness, Unwritten
from simgpu.engine.finding import Finding, hazard_message, wait_message
from simgpu.hardware.architectures import GFX12
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import DecodeError, SimError
from simgpu.hardware.isa import decode, text
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effect import Effect

ROUNDS = 8  # most repetitions of an analysis without pairs that no path joins
TOO_MANY_PATHS = "there are too many paths to follow them all: not all code was checked"
BY_PLACE = ("resource", "uninitialized")  # kinds of findings that an instruction may have several of


def lint(code: CodeObject) -> list[Finding]:
    """Returns the findings of all kernels of a code object, kernel by kernel. Raises DecodeError for an entry outside the code.

    >>> from simgpu import asm, operators
    >>> text = asm.emit(operators.TiledComputation(16, 16, 16, target="mi300x")).text
    >>> without_waits = asm.assemble(text.replace("s_waitcnt vmcnt(0)", "s_nop 0"), "gfx942")
    >>> finding = lint(CodeObject.parse(without_waits))[0]
    >>> finding.kind, finding.certainty
    ('missing-wait', 'every path')
    """
    return [finding for kernel in code.kernels.values() for finding in lint_kernel(code, kernel)]


def lint_kernel(code: CodeObject, kernel: KernelInfo) -> list[Finding]:
    """Returns the findings of one kernel in `causes.order`, one per kind and pair of places. Raises DecodeError as `lint` does."""
    return [case.finding for case in sorted(_cases(code, kernel), key=order)]


def lint_causes(code: CodeObject, kernel: KernelInfo) -> list[Finding]:
    """Returns the findings of one kernel, one per cause; see `causes.group_by_cause`."""
    return group_by_cause(_cases(code, kernel))


def _cases(code: CodeObject, kernel: KernelInfo) -> list[Case]:
    """Returns the cases of a kernel, unsorted."""
    graph = graph_of(code, kernel)
    blocks, steps = StraightBlocks(graph), graph.known.values()
    told = FindingList(code, kernel)
    if code.target in GFX12:
        return _cases_gfx12(blocks, kernel, told)
    several = kernel.max_flat_workgroup_size > WAVEFRONT
    work_items = kernel.max_flat_workgroup_size
    definedness = Definedness(kernel, blocks, Conditions(steps, work_items))
    defined = examine(blocks, definedness)
    search = PathSearch(blocks, lambda: Conditions(steps, work_items, every=True), defined.before if defined else None)
    behind = lds_behind(blocks) if several else {}
    addresses = LdsAddresses(blocks, kernel)
    waits = _possible(blocks, search, lambda apart: Waits(graph.known, behind, addresses.disjoint, apart))
    unwaited = {one.step.pc for one in waits or () if one.sure and blocks.precedes(one.earlier.pc, one.step.pc)}
    hazards = _possible(blocks, search, lambda apart: Hazards(graph.known, code.target, code.xnack, unwaited, apart))
    for unwritten in defined.found if defined else ():
        told.add_undefined(unwritten)
    for late in waits or ():
        told.wait(late)
    for close in hazards or ():
        told.hazard(close)
    if defined is None or waits is None or hazards is None:
        told.add(NOT_FOLLOWED, None, TOO_MANY_PATHS, error=False)
    elif several:
        for barrier in uneven(blocks, definedness.taken, kernel.packs_work_items, work_items):
            told.barrier(barrier)
    _add_remarks(told, code, kernel, graph)
    return judge(told.found.values(), blocks, search, addresses, code.target, -(-work_items // WAVEFRONT))


def _cases_gfx12(blocks: StraightBlocks, kernel: KernelInfo, told: FindingList) -> list[Case]:
    """Returns the cases of a kernel for GFX12. Undefined registers and wait states are not checked there."""
    found = verdicts(blocks, kernel)
    if found is None:
        told.add(NOT_FOLLOWED, None, TOO_MANY_PATHS, error=False)
    for one in found or ():
        told.add(
            one.kind, one.step, one.message, other=one.earlier, error=one.error, place=one.place, needed=one.needed, rule=one.rule,
            certainty=one.certainty,
        )  # fmt: skip
    _add_remarks(told, told.code, kernel, blocks.graph)
    return [replace(case, loop=_loop_of(blocks, case)) for case in told.found.values()]


def _loop_of(blocks: StraightBlocks, case: Case) -> int:
    around = blocks.loop_around(case.finding.pc) if case.finding.pc in blocks.places else None
    return -1 if around is None else min(around)


Pair = TypeVar("Pair", UnwaitedAccess, TooClose)


def _possible(
    blocks: StraightBlocks, search: PathSearch, analysis: Callable[[set[tuple[int, int]]], PathAnalysis[Any, Pair]]
) -> list[Pair] | None:  # fmt: skip
    """Returns the reports of an analysis, except pairs of instructions that no possible path joins; None if it was given up.

    An analysis continues as if a reported bug were repaired, so an impossible pair may hide another report. It therefore runs
    again without such pairs.
    """
    apart: set[tuple[int, int]] = set()
    found: list[Pair] = []
    for _ in range(ROUNDS):
        flowed = examine(blocks, analysis(apart))
        if flowed is None:
            return None
        never = {(one.earlier.pc, one.step.pc) for one in flowed.found if search.way(one.earlier, one.step, one.gap) is None}
        apart |= never
        found = [one for one in flowed.found if (one.earlier.pc, one.step.pc) not in apart]
        if not never:
            break
    return found


def _add_remarks(told: FindingList, code: CodeObject, kernel: KernelInfo, graph: Graph) -> None:
    """Adds findings that need no paths: remarks on the control flow, undeclared registers, unreachable code."""
    for remark in graph.remarks.values():
        broken = remark.kind == NO_INSTRUCTION
        certainty = "some path" if broken else ""
        told.add(remark.kind, graph.known.get(remark.pc), remark.message, error=broken, certainty=certainty)
    places: dict[int, tuple[int, Effect]] = {}  # an effect at its first place
    for pc in sorted(graph.known):
        places.setdefault(id(graph.known[pc].effect), (pc, graph.known[pc].effect))
    for excess in excesses(kernel, registers_used(places.values())):
        place = kernel.start if excess.place is None else excess.place
        told.add("resource", graph.known.get(place), excess.message, place=excess.what, certainty="every path")
    if graph.complete:
        for step, count in unreachable(code, kernel, graph):
            never = f"{count} instructions that never run" if count > 1 else "an instruction that never runs"
            told.add("unreachable", step, f"no path leads here: {never}", error=False)


def graph_of(code: CodeObject, kernel: KernelInfo) -> Graph:
    """Returns the control flow of a kernel, with and without preloaded arguments. Raises DecodeError."""
    segment = next((s for s in code.segments if s.executable and s.address <= kernel.entry < s.end), None)
    if segment is None:
        raise DecodeError(f"kernel {kernel.title}: its entry {kernel.entry:#x} is not in an executable segment")
    places = {relocation.place for relocation in code.relocations}
    loaded = functools.cache(code.image)

    def relocated_bytes(address: int, size: int) -> bytes | None:
        if address not in places:
            return None
        image, base = loaded()
        return bytes(image[address - base : address - base + size])

    return Graph(segment.data, segment.address, code.target, list(dict.fromkeys((kernel.start, kernel.entry))), relocated_bytes)


class FindingList:
    """Collects cases, one per kind and pair of places."""

    def __init__(self, code: CodeObject, kernel: KernelInfo) -> None:
        self.code, self.kernel = code, kernel
        self.found: dict[tuple[Any, ...], Case] = {}

    def add(
        self, kind: str, step: LintStep | None, message: str, pair: UnwaitedAccess | TooClose | None = None,
        other: LintStep | None = None, error: bool = True, **fields: Any,
    ) -> None:  # fmt: skip
        """Adds a case. Of several with the same pair of places, it keeps the one that lacks most."""
        pc = self.kernel.entry if step is None else step.pc
        other = pair.earlier if pair is not None else other
        if other is not None:
            line, frames = self.code.debug.place(other.pc)
            fields |= {
                "other_pc": other.pc, "other_at": self.code.address_name(self.kernel, other.pc), "other_text": text(other.inst),
                "other_source": line, "other_frames": frames,
            }  # fmt: skip
        line, frames = self.code.debug.place(pc)
        finding = Finding(
            kind, message, pc, "" if step is None else text(step.inst), count=0, severity="error" if error else "note",
            source=line, frames=frames, kernel=self.kernel.title, at=self.code.address_name(self.kernel, pc), **fields,
        )  # fmt: skip
        key = kind, pc, finding.other_pc, finding.place if kind in BY_PLACE else ""
        had = self.found.get(key)
        if had is None or _lacking(finding) > _lacking(had.finding):
            self.found[key] = Case(finding, pair)

    def wait(self, seen: UnwaitedAccess) -> None:
        waits = " ".join(f"{counter}({count})" for counter, count in seen.waits)
        place, needed = first(seen.registers), min(count for _, count in seen.waits)
        if seen.what == "shared":
            message = f"`{text(seen.earlier.inst)}` may be in flight when other waves use LDS after the barrier: "
            message += f"s_waitcnt {waits} is needed before it" + ("" if seen.sure else ", unless their addresses differ")
        elif seen.what == "released":
            message = f"others may see this store before `{text(seen.earlier.inst)}` has written earlier stores back: "
            message += f"s_waitcnt {waits} is needed before it, which clang leaves out before version 23 (llvm #178316)"
        else:
            message = wait_message(place, seen.what, text(seen.earlier.inst), waits)
        self.add("missing-wait", seen.step, message, seen, error=seen.sure, place=place, needed=needed, rule=seen.what)

    def hazard(self, seen: TooClose) -> None:
        place, rule = first(seen.registers), seen.rule.name
        message = hazard_message(rule, place, text(seen.earlier.inst), seen.needed, seen.found)
        self.add("hazard", seen.step, message, seen, place=place, needed=seen.needed, found=seen.found, rule=rule)

    def add_undefined(self, seen: Unwritten) -> None:
        place = first(seen.registers)
        message = f"{seen.use} depends on {place}, which holds uninitialized data"
        certainty = "every path" if seen.sure else "some path"
        self.add("uninitialized", seen.step, message, place=place, rule=seen.use, certainty=certainty)

    def barrier(self, seen: Uneven) -> None:
        way = "where it branches" if seen.taken else "where it does not branch"
        branch = text(seen.branch.inst)
        message = f"a wave comes to this barrier from `{branch}` only {way}: waves that differ in EXEC there do not meet"
        self.add("barrier", seen.barrier, message, other=seen.branch, certainty="some path")


def _lacking(finding: Finding) -> int:
    """Returns the size of what is missing: wait states, or the negated lowest count of a wait."""
    return finding.needed - finding.found if finding.kind == "hazard" else -finding.needed


def unreachable(code: CodeObject, kernel: KernelInfo, graph: Graph) -> Iterator[tuple[LintStep, int]]:
    """Yields runs of instructions of the kernel's symbol to which no path leads: the first instruction, and their number.

    Leaves out padding (s_nop, s_code_end), bytes that are no instruction, and code after a trap.
    """
    symbol = code.symbols.get(kernel.name)
    if symbol is None or symbol.address != kernel.entry or symbol.size <= 0:
        return
    raw = code.read(kernel.entry, kernel.code_size)
    at, before = 0, None
    run: list[LintStep] = []
    while at < len(raw):
        pc = kernel.entry + at
        step = graph.known.get(pc)
        size = 4
        if step is None:
            with contextlib.suppress(SimError):
                inst = decode(raw, at, code.target)
                size = inst.size
                if inst.spec.control is not ControlKind.NOP and (run or before is None or before.control is not ControlKind.TRAP):
                    run.append(LintStep(pc, inst))
        else:
            size, before = step.inst.size, step
        at += size
        if run and (step is not None or at >= len(raw)):
            yield run[0], len(run)
            run = []
