"""Finds uses of registers that nothing wrote on some path.

The state of a place holds the registers that neither the launch nor an instruction defined, on any path to it. Moves and
arithmetic pass undefined values on. Undefined values matter in an address, a branch, EXEC, a store to device memory, and a
matrix product.

Registers and memory are tracked as wholes. A register counts as written after a partial write, a write in some lanes, or a
load. A bitwise operation, selection or packing of a defined and an undefined register gives a written one. If a branch skips code
because no lane is active, the vector registers that this code writes count as written: no lane would have run it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from simgpu.checks.lint import conditions
from simgpu.checks.lint.conditions import MOST_WAYS, NO_FACTS, Conditions, Facts
from simgpu.checks.lint.flow import PathAnalysis, StraightBlocks
from simgpu.checks.lint.registers import EXEC, M0, SCC, VCC, VECTORS, bits, span
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.isa.instruction import FLAT_SCRATCH, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.effects import registers_of, word_sources

ALL = VECTORS | span("s", 0, 102) | VCC | SCC | M0
# The low word of these 64-bit results depends only on the low words of the sources.
CARRY_UP = ("v_mad_u64_u32", "v_mad_i64_i32", "v_lshlrev_b64", "v_lshl_add_u64", "s_lshl_b64")
# A defined source may decide the result of these, bit by bit or lane by lane.
DECIDES = (
    "s_and_b", "s_or_b", "s_andn2_b", "s_orn2_b", "s_nand_b", "s_nor_b", "s_and_saveexec", "s_or_saveexec", "s_andn2_saveexec",
    "s_orn2_saveexec", "s_andn1_saveexec", "s_orn1_saveexec", "v_and_b", "v_or_b", "v_bfi_b", "v_perm_b", "v_cvt_pk", "v_pack_b",
)  # fmt: skip
SELECTS = ("s_cselect", "v_cndmask")


@dataclass(frozen=True)
class Unwritten:
    """A use of registers that nothing defined on some path."""

    step: LintStep
    registers: int  # undefined registers, as bits
    use: str  # how the instruction uses them
    sure: bool  # True if it is so on every path


@dataclass(frozen=True)
class Contents:
    """Contents of registers at a place, as sets of bits."""

    undefined: int  # registers that nothing defined on some path
    surely: int  # registers that nothing defined on every path
    private: int  # SGPRs that hold words of the private segment's buffer resource on every path

    def join(self, other: Contents) -> Contents:
        """Returns the contents by either path."""
        return Contents(self.undefined | other.undefined, self.surely & other.surely, self.private & other.private)


def undefined_at(kernel: KernelInfo, pc: int) -> int:
    """Returns the registers that are undefined when a wave begins at an entry (AMDGPUUsage, "Initial Kernel Execution State")."""
    descriptor = kernel.descriptor
    user = descriptor.launch_state_sgprs
    if pc == kernel.start:
        user += descriptor.preload_length
    ids = descriptor.enable_workgroup_id_x + descriptor.enable_workgroup_id_y + descriptor.enable_workgroup_id_z
    ids += descriptor.enable_workgroup_info
    architected = kernel.target in SINCE_GFX942
    offset = descriptor.enable_private_segment and not architected  # the wave's offset in private memory
    work_items = descriptor.workitem_id_mode + 1 if kernel.target == "gfx908" else 1  # later GPUs pack them into v0
    given = span("s", 0, user) | span("s", descriptor.user_sgprs, ids + offset) | span("v", 0, work_items)
    if architected:
        given |= span("s", FLAT_SCRATCH, 2)
    return ALL & ~given


@dataclass(frozen=True)
class Ways:
    """Contents of registers at a place, separately for each set of facts about conditions."""

    by_facts: Mapping[Facts, Contents]
    coarse: int = 0  # 0 for all facts, 1 without tests and values, 2 for none: fewer facts if there are too many paths

    @classmethod
    def of(cls, ways: Iterable[tuple[Facts, Contents]], coarse: int) -> Ways:
        """Joins paths with the same facts. If there are still too many, the facts are made coarser."""
        ways = list(ways)
        while True:
            made: dict[Facts, Contents] = {}
            for facts, contents in ways:
                facts = facts if coarse == 0 else conditions.flags_only(facts) if coarse == 1 else NO_FACTS
                had = made.get(facts)
                made[facts] = contents if had is None else had.join(contents)
            if len(made) <= MOST_WAYS or coarse > 1:
                return cls(made, coarse)
            coarse += 1


class Definedness(PathAnalysis[Ways, Unwritten]):
    """Data flow over the blocks of a kernel. taken: the branches (address, taken or not) that some path takes."""

    def __init__(self, kernel: KernelInfo, blocks: StraightBlocks, facts: Conditions) -> None:
        self.kernel, self.steps, self.facts = kernel, blocks.graph.known, facts
        self.taken: set[tuple[int, bool]] = set()
        self._needs = facts.needs(blocks.all_steps, blocks.following)
        self._skipped: dict[int, int] = {}
        self._masks: dict[tuple[int, int], tuple[int, int, int]] = {}

    def begin(self, step: LintStep) -> Ways:
        resource = span("s", 0, 4) if self.kernel.descriptor.enable_private_segment_buffer else 0
        undefined = undefined_at(self.kernel, step.pc)
        return Ways({self.facts.at_entry(self.kernel.packs_work_items): Contents(undefined, undefined, resource)})

    def forget(self, state: Ways) -> Ways:
        """Clears everything: an unknown function may have written anything."""
        return Ways({NO_FACTS: Contents(0, 0, 0)}, state.coarse)

    def size(self, state: Ways) -> int:
        return len(state.by_facts)

    def join(self, state: Ways, other: Ways) -> Ways | None:
        both = (*state.by_facts.items(), *other.by_facts.items())
        joined = Ways.of(both, max(state.coarse, other.coarse))
        return None if joined == state else joined

    def along(self, block: int, last: LintStep, taken: bool, state: Ways) -> Ways | None:
        skipped = self._skipped_by(last) if taken else 0
        needed = self._needs[block]
        found = []
        for facts, contents in state.by_facts.items():
            way = self.facts.along(last, taken, facts)
            if way is not None:
                passed = Contents(contents.undefined & ~skipped, contents.surely & ~skipped, contents.private)
                found.append((conditions.drop_unneeded(way, needed), passed))
        if not found:
            return None
        self.taken.add((last.pc, taken))
        return Ways.of(found, 0)  # facts that one place has too many of may be few at the next

    def transfer(self, state: Ways, steps: Sequence[LintStep], tell: Callable[[Unwritten], None]) -> Ways:
        found: list[tuple[Facts, Contents]] = []
        told: dict[tuple[int, str], list[Unwritten]] = {}
        for facts, contents in state.by_facts.items():
            missed: list[Unwritten] = []
            after = self._contents(contents, steps, missed.append)
            found += [(way, after) for way in self.facts.transfer(facts, steps)]
            for one in missed:
                told.setdefault((one.step.pc, one.use), []).append(one)
        for ones in told.values():
            sure = len(ones) == len(state.by_facts) and all(one.sure for one in ones)
            tell(replace(ones[0], sure=sure))
        return Ways.of(found, state.coarse)

    def _contents(self, state: Contents, steps: Sequence[LintStep], tell: Callable[[Unwritten], None]) -> Contents:
        place = steps[0].pc, len(steps)
        if place not in self._masks:
            self._masks[place] = _masks(steps)
        exposed, writes, touched = self._masks[place]
        if not (state.undefined | state.private) & touched:
            return state
        if not (state.undefined & exposed | state.private & touched):
            return Contents(state.undefined & ~writes, state.surely & ~writes, state.private)
        for step in steps:
            if (state.undefined | state.private) & step.touched:
                state = pass_by(state, step, tell)
        return state

    def _skipped_by(self, step: LintStep) -> int:
        """Returns the vector registers written by code that a branch jumps over if no lane is active."""
        target = step.target
        if step.control is not ControlKind.CBRANCH_EXECZ or target is None or target < step.pc:
            return 0
        if step.pc not in self._skipped:
            jumped = (self.steps[pc].writes for pc in range(step.pc, target, 4) if pc in self.steps)
            self._skipped[step.pc] = functools.reduce(int.__or__, jumped, 0) & VECTORS
        return self._skipped[step.pc]


def _masks(steps: Sequence[LintStep]) -> tuple[int, int, int]:
    """Returns the registers that instructions read before they write them, that they write, and that they touch."""
    exposed = writes = touched = 0
    for step in steps:
        exposed |= step.reads & ~writes
        writes |= step.writes
        touched |= step.touched
    return exposed, writes, touched


def pass_by(state: Contents, step: LintStep, tell: Callable[[Unwritten], None]) -> Contents:
    """Returns the contents after an instruction. Uses that matter are reported, then counted as defined."""
    undefined, surely = state.undefined, state.surely
    if undefined & step.reads:
        for use, registers in _uses(step, state.private):
            missed = undefined & registers
            if missed:
                tell(Unwritten(step, missed & surely or missed, use, bool(missed & surely)))
                undefined, surely = undefined & ~missed, surely & ~missed
    return Contents(
        undefined & ~step.writes | _carried_registers(step, undefined), surely & ~step.writes | _carried_registers(step, surely),
        _private(step, state.private),
    )  # fmt: skip


def _uses(step: LintStep, private: int) -> list[tuple[str, int]]:
    """Returns the uses of an instruction in which undefined values matter: the purpose, for messages, and the registers."""
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
    if step.writes & EXEC and not _is_decided(step, 0):
        return [("EXEC", step.reads)]
    return []


def _is_private(step: LintStep, private: int) -> bool:
    """True if a buffer access goes to private memory, by the last words of its resource."""
    resource = step.inst.args.get("srsrc")
    if not isinstance(resource, Reg) or resource.count != 4:
        return False
    words = bits(registers_of(resource[2:]))
    return private & words == words


def _private(step: LintStep, private: int) -> int:
    """Returns the SGPRs with words of the private segment's resource after an instruction: moved, or with the wave's offset
    added."""
    if not private or not private & (step.reads | step.writes):
        return private
    name, kept = step.inst.mnemonic, 0
    if name in ("s_mov_b32", "s_mov_b64"):
        kept = _by_word(step, word_sources(step.inst), private)
    elif name in ("s_add_u32", "s_addc_u32"):
        kept = step.writes if bits(registers_of(step.inst.args.get("src0"))) & private else 0
    return private & ~step.writes | kept & ~SCC


def _carried_registers(step: LintStep, undefined: int) -> int:
    """Returns the registers that an instruction leaves undefined because of its sources."""
    if step.pending and not step.effect.lds and "ds" in step.effect.access.classes:  # a permutation: from lane to lane
        return step.writes if bits(step.effect.access.read(("data",))) & undefined else 0
    if not undefined & step.reads or step.pending or _is_decided(step, undefined):
        return 0
    if step.inst.mnemonic.startswith("v_writelane"):
        return 0
    if words := word_sources(step.inst):
        return _by_word(step, words, undefined)
    if step.inst.mnemonic in CARRY_UP:
        return _carry_up(step, undefined)
    return step.writes & ALL


def _is_decided(step: LintStep, undefined: int) -> bool:
    """True if a defined source may decide the result: a register, or a constant to select."""
    name, args = step.inst.mnemonic, step.inst.args
    if name.startswith(SELECTS):
        return any(not bits(registers_of(args.get(field))) & undefined for field in ("src0", "src1"))
    return name.startswith(DECIDES) and bool(step.reads & ~undefined & ~SCC)


def _by_word(step: LintStep, words: Sequence[Sequence[Reg]], undefined: int) -> int:
    """Returns the result's words of which a source is in the set."""
    target = next(operand for name, operand in step.inst.args.items() if name in ("sdst", "vdst"))
    if not isinstance(target, Reg):
        return 0
    return bits(
        register for word, sources in enumerate(words) if bits(itertools.chain(*map(registers_of, sources))) & undefined
        for register in registers_of(target[word])
    )  # fmt: skip


def _carry_up(step: LintStep, undefined: int) -> int:
    """Returns the whole result if a low word is in the set, else its high word."""
    low = 0
    for name, operand in step.inst.args.items():
        if isinstance(operand, Reg) and name not in ("vdst", "sdst"):
            low |= bits(registers_of(operand[0]))
    if low & undefined:
        return step.writes & ALL
    target = step.inst.args.get("vdst") or step.inst.args.get("sdst")
    return step.writes & ALL & ~bits(registers_of(target[0])) if isinstance(target, Reg) else step.writes & ALL
