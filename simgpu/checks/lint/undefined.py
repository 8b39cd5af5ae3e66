"""Registers that matter where, on some path, what they hold was written by nothing.

At each place, on any path to it: the registers that hold what neither the launch nor an instruction defined. Moves and arithmetic
carry it along; it matters in an address, a branch, EXEC, what is stored to device memory, and a matrix product. Registers are
whole, and so is memory: a register that was written in part or for some lanes, one that was loaded, and what a bitwise operation
or a selection makes of a defined register and another count as written. Where a branch skips code because no lane is active,
the vector registers that this code writes count as written: no lane would have run it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simgpu.checks.lint import conditions
from simgpu.checks.lint.conditions import NO_FACTS, Facts
from simgpu.checks.lint.flow import PathAnalysis
from simgpu.checks.lint.registers import EXEC, M0, SCC, VCC, VECTORS, bits, span
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.code_object.code_object import KernelInfo
from simgpu.hardware.isa.instruction import FLAT_SCRATCH, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.effects import registers_of

MOST_WAYS = 16  # that are told apart where paths meet
ALL = VECTORS | span("s", 0, 102) | VCC | SCC | M0
# Of 64-bit results, the low word depends on the low words of the sources alone.
CARRY_UP = ("v_mad_u64_u32", "v_mad_i64_i32", "v_lshlrev_b64", "v_lshl_add_u64", "s_lshl_b64")
WORD_BY_WORD = ("s_mov_b64", "s_not_b64", "v_mov_b64")
# A defined source may decide what these make of an undefined one, bit by bit or lane by lane.
DECIDES = (
    "s_and_b", "s_or_b", "s_andn2_b", "s_orn2_b", "s_nand_b", "s_nor_b", "s_and_saveexec", "s_or_saveexec", "s_andn2_saveexec",
    "s_orn2_saveexec", "s_andn1_saveexec", "s_orn1_saveexec", "v_and_b", "v_or_b", "v_bfi_b", "v_perm_b",
)  # fmt: skip
SELECTS = ("s_cselect", "v_cndmask")


@dataclass(frozen=True)
class Unwritten:
    """An instruction to which registers matter that on some path nothing defined. use: what it takes them for."""

    step: LintStep
    registers: int
    use: str


@dataclass(frozen=True)
class Contents:
    """undefined: registers with what nothing defined. private: SGPRs that hold words of the private segment's resource."""

    undefined: int
    private: int

    def joined(self, other: Contents) -> Contents | None:
        """By either way; None if that is this."""
        both = Contents(self.undefined | other.undefined, self.private & other.private)
        return None if both == self else both


def undefined_at(kernel: KernelInfo, pc: int) -> int:
    """The registers that nothing defined when a wave begins at an entry (AMDGPUUsage, "Initial Kernel Execution State")."""
    descriptor = kernel.descriptor
    user = descriptor.launch_state_sgprs
    if pc == kernel.start:
        user += descriptor.preload_length
    ids = descriptor.enable_workgroup_id_x + descriptor.enable_workgroup_id_y + descriptor.enable_workgroup_id_z
    ids += descriptor.enable_workgroup_info
    architected = kernel.target in SINCE_GFX942
    offset = descriptor.enable_private_segment and not architected  # of the wave in private memory
    work_items = descriptor.workitem_id_mode + 1 if kernel.target == "gfx908" else 1  # later ones pack them into v0
    given = span("s", 0, user) | span("s", descriptor.user_sgprs, ids + offset) | span("v", 0, work_items)
    if architected:
        given |= span("s", FLAT_SCRATCH, 2)
    return ALL & ~given


@dataclass(frozen=True)
class Ways:
    """The contents by what is known of conditions; merged: once there were too many to tell them apart."""

    by_facts: Mapping[Facts, Contents]
    merged: bool = False


class Definedness(PathAnalysis[Ways, Unwritten]):
    """The data flow over the steps of a kernel, by address. taken: the branches (address, taken or not) that some path takes."""

    def __init__(self, kernel: KernelInfo, steps: Mapping[int, LintStep]) -> None:
        self.kernel = kernel
        self.steps = steps
        self.taken: set[tuple[int, bool]] = set()
        self._kept = conditions.remembered(steps.values())
        self._skipped: dict[int, int] = {}

    def begin(self, step: LintStep) -> Ways:
        resource = span("s", 0, 4) if self.kernel.descriptor.enable_private_segment_buffer else 0
        return Ways({conditions.AT_ENTRY: Contents(undefined_at(self.kernel, step.pc), resource)})

    def forget(self, state: Ways) -> Ways:
        """A function that is not known may have written anything."""
        return Ways({NO_FACTS: Contents(0, 0)}, state.merged)

    def size(self, state: Ways) -> int:
        return len(state.by_facts)

    def join(self, state: Ways, other: Ways) -> Ways | None:
        result = dict(state.by_facts)
        for facts, contents in other.by_facts.items():
            _add(result, NO_FACTS if state.merged else facts, contents)
        joined = Ways(result, state.merged)
        if len(result) > MOST_WAYS:
            one: dict[Facts, Contents] = {}
            for contents in result.values():
                _add(one, NO_FACTS, contents)
            joined = Ways(one, True)
        return None if joined == state else joined

    def along(self, last: LintStep, taken: bool, state: Ways) -> Ways | None:
        skipped = self._skipped_by(last) if taken else 0
        result: dict[Facts, Contents] = {}
        for facts, contents in state.by_facts.items():
            way = conditions.feasible(last, taken, facts)
            if way is not None:
                _add(result, way, Contents(contents.undefined & ~skipped, contents.private))
        if not result:
            return None
        self.taken.add((last.pc, taken))
        return Ways(result, state.merged)

    def pass_by(self, state: Ways, step: LintStep, tell: Callable[[Unwritten], None] | None) -> Ways:
        result: dict[Facts, Contents] = {}
        for facts, contents in state.by_facts.items():
            behind = pass_by(contents, step, tell)
            for way in conditions.behind(step, facts, self._kept):
                _add(result, way, behind)
        return Ways(result, state.merged)

    def _skipped_by(self, step: LintStep) -> int:
        """The vector registers that code writes which a branch jumps over where no lane is active."""
        target = step.target
        if step.control is not ControlKind.CBRANCH_EXECZ or target is None or target < step.pc:
            return 0
        if step.pc not in self._skipped:
            jumped = (self.steps[pc].writes for pc in range(step.pc, target, 4) if pc in self.steps)
            self._skipped[step.pc] = functools.reduce(int.__or__, jumped, 0) & VECTORS
        return self._skipped[step.pc]


def _add(ways: dict[Facts, Contents], facts: Facts, contents: Contents) -> None:
    had = ways.get(facts)
    ways[facts] = contents if had is None else had.joined(contents) or had


def pass_by(state: Contents, step: LintStep, tell: Callable[[Unwritten], None] | None) -> Contents:
    """The contents behind an instruction; what mattered is told, and taken for mended."""
    undefined = state.undefined
    if undefined & step.reads:
        for use, registers in _uses(step, state.private):
            missed = undefined & registers
            if missed:
                undefined &= ~missed
                if tell is not None:
                    tell(Unwritten(step, missed, use))
    return Contents(undefined & ~step.writes | _carried(step, undefined), _private(step, state.private))


def _uses(step: LintStep, private: int) -> list[tuple[str, int]]:
    """What matters to an instruction: what for, and the registers."""
    effect, access = step.effect, step.effect.access
    if access.classes & {"vmem", "ds", "smem"}:
        uses = [("an address", bits(access.read(("address", "soffset"))))]
        memory = step.inst.spec.memory
        if "ds" not in access.classes and memory is not None and memory.space != "scratch" and not _is_private(step, private):
            uses.append(("what device memory gets", bits(access.read(("data",)))))
        return uses
    if "mfma" in access.classes:
        return [("a matrix product", step.reads)]
    if effect.control in STATE_BRANCHES:
        return [("a branch", step.reads)]
    if effect.control in (ControlKind.SETPC, ControlKind.SWAPPC):
        return [("a jump's address", step.reads)]
    if step.writes & EXEC and not _decided(step, 0):
        return [("EXEC", step.reads)]
    return []


def _is_private(step: LintStep, private: int) -> bool:
    """Whether a buffer access goes to private memory, by the last words of its resource."""
    resource = step.inst.args.get("srsrc")
    if not isinstance(resource, Reg) or resource.count != 4:
        return False
    words = bits(registers_of(resource[2:]))
    return private & words == words


def _private(step: LintStep, private: int) -> int:
    """The SGPRs with words of the private segment's resource behind an instruction: moved, or with the wave's offset added."""
    if not private or not private & (step.reads | step.writes):
        return private
    name, kept = step.inst.mnemonic, 0
    if name in ("s_mov_b32", "s_mov_b64"):
        kept = _by_word(step, private)
    elif name in ("s_add_u32", "s_addc_u32"):
        kept = step.writes if bits(registers_of(step.inst.args.get("src0"))) & private else 0
    return private & ~step.writes | kept & ~SCC


def _carried(step: LintStep, undefined: int) -> int:
    """The registers that an instruction leaves undefined because of what it read."""
    if step.pending and not step.effect.lds and "ds" in step.effect.access.classes:  # a permutation: from lane to lane
        return step.writes if bits(step.effect.access.read(("data",))) & undefined else 0
    if not undefined & step.reads or step.pending or _decided(step, undefined):
        return 0
    if step.inst.mnemonic.startswith("v_writelane"):
        return 0
    if step.inst.mnemonic in WORD_BY_WORD:
        return _by_word(step, undefined)
    if step.inst.mnemonic in CARRY_UP:
        return _carry_up(step, undefined)
    return step.writes & ALL


def _decided(step: LintStep, undefined: int) -> bool:
    """Whether something defined may decide the result: a register, or a constant to select."""
    name, args = step.inst.mnemonic, step.inst.args
    if name.startswith(SELECTS):
        return any(not bits(registers_of(args.get(field))) & undefined for field in ("src0", "src1"))
    return name.startswith(DECIDES) and bool(step.reads & ~undefined & ~SCC)


def _by_word(step: LintStep, undefined: int) -> int:
    """Those of the result's words whose source's word is in the set."""
    target = next(operand for name, operand in step.inst.args.items() if name in ("sdst", "vdst"))
    source = step.inst.args.get("src0")
    if not isinstance(source, Reg) or not isinstance(target, Reg):
        return 0
    words = range(min(source.count, target.count))
    return bits(
        register for word in words if bits(registers_of(source[word])) & undefined for register in registers_of(target[word])
    )


def _carry_up(step: LintStep, undefined: int) -> int:
    """The whole result where a low word is in the set, else its high word."""
    low = 0
    for name, operand in step.inst.args.items():
        if isinstance(operand, Reg) and name not in ("vdst", "sdst"):
            low |= bits(registers_of(operand[0]))
    if low & undefined:
        return step.writes & ALL
    target = step.inst.args.get("vdst") or step.inst.args.get("sdst")
    return step.writes & ALL & ~bits(registers_of(target[0])) if isinstance(target, Reg) else step.writes & ALL
