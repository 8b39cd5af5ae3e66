"""State at a kernel's entry, as terms: arguments, ids of its workgroup and work-item, and registers.

Both kernels get the same terms for what a launch decides. Undefined values have other names in each kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.engine.workers.initial_state import mode_register
from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.code_object.code_object import Argument, CodeObject, KernelInfo
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.lane_smt import bits_of, concat, fold, number
from simgpu.proof.memory_log import MemoryLog
from simgpu.proof.roots import POINTER, Roots
from simgpu.proof.state import WaveState
from simgpu.proof.terms import Lanes, NotModelled

Term = Any
CODE_BASE = 1 << 46  # where the code object's addresses begin, for addresses that code computes from the program counter
AXES = "xyz"
# Fields of the dispatch packet: offset, bytes, symbol.
PACKET = [
    *((4 + 2 * at, 2, f"hidden_group_size_{axis}") for at, axis in enumerate(AXES)),
    *((12 + 4 * at, 4, f"grid_size_{axis}") for at, axis in enumerate(AXES)),
]


def argument_symbol(index: int, argument: Argument) -> Term:
    """Returns the value of an explicit argument, by its number."""
    return z3.BitVec(f"{POINTER if argument.is_pointer else 'arg'}{index}", 8 * argument.size)


def group_id(axis: str) -> Term:
    return z3.BitVec(f"workgroup_id_{axis}", 32)


def item_id(axis: str, lanes: Lanes) -> Term:
    """Returns the work-item's id in its workgroup, 10 bits."""
    return bits_of(z3.Function(f"workitem_id_{axis}", z3.BitVecSort(32), z3.BitVecSort(32))(lanes.lane), 0, 10)


@dataclass(frozen=True)
class KernelInputs:
    """A kernel, its symbols, and the memory whose content is known."""

    name: str  # of the symbols of undefined values
    code: CodeObject
    info: KernelInfo
    lanes: Lanes
    roots: Roots
    read_only: frozenset[str] = frozenset()
    kernarg: Term = field(default_factory=lambda: z3.BitVec("kernarg", 64))
    dispatch: Term = field(default_factory=lambda: z3.BitVec("dispatch", 64))
    code_base: int = CODE_BASE

    def argument_bytes(self, offset: int, size: int) -> Term:
        """Returns bytes of the kernel's arguments."""
        found: list[Term] = [z3.BitVec(f"{self.name}.kernarg+{offset + at}", 8) for at in range(size)]
        explicit = 0
        for argument in self.info.arguments:
            if argument.hidden:
                symbol = z3.BitVec(argument.value_kind, 8 * argument.size)
            else:
                symbol = argument_symbol(explicit, argument)
                explicit += 1
            for at in range(size):
                byte = offset + at - argument.offset
                if 0 <= byte < argument.size:
                    found[at] = bits_of(symbol, 8 * byte, 8)
        return concat(*found)

    def packet_bytes(self, offset: int, size: int) -> Term:
        """Returns bytes of the dispatch packet."""
        found: list[Term] = [z3.BitVec(f"packet+{offset + at}", 8) for at in range(size)]
        for start, count, name in PACKET:
            for at in range(size):
                if 0 <= offset + at - start < count:
                    found[at] = bits_of(z3.BitVec(name, 8 * count), 8 * (offset + at - start), 8)
        return concat(*found)

    def constant_bytes(self, address: int, size: int) -> Term:
        """Returns bytes of the code object's constants, by the file's virtual address."""
        for segment in self.code.segments:
            if segment.address <= address and address + size <= segment.end and not segment.writable:
                return number(int.from_bytes(self.code.read(address, size), "little"), 8 * size)
        raise NotModelled("a global variable")

    def facts(self) -> list[Term]:
        """Returns what a launch guarantees about the symbols."""
        info = self.info
        known = []
        sizes = info.required_workgroup_size or (info.max_flat_workgroup_size,) * 3
        for axis, most in zip(AXES, sizes, strict=False):
            extent = z3.ZeroExt(16, z3.BitVec(f"hidden_group_size_{axis}", 16))
            known += [z3.ULT(z3.ZeroExt(22, item_id(axis, self.lanes)), extent), z3.ULE(extent, most)]
            if info.required_workgroup_size:
                known.append(extent == most)
        return known


def initial_state(inputs: KernelInputs) -> WaveState:
    """Returns the state that a wave begins with (LLVM AMDGPUUsage, "Initial Kernel Execution State")."""
    info, lanes = inputs.info, inputs.lanes
    descriptor = info.descriptor
    state = WaveState(
        inputs.name, lanes, info.start, mode_register(descriptor), MemoryLog(inputs.name, lanes, inputs.roots, inputs.read_only)
    )
    words: list[Term] = _user_words(inputs)
    for at, axis in enumerate(AXES):
        if (descriptor.enable_workgroup_id_x, descriptor.enable_workgroup_id_y, descriptor.enable_workgroup_id_z)[at]:
            words.append(group_id(axis))
    if descriptor.enable_workgroup_info:
        words.append(z3.BitVec(f"{inputs.name}.workgroup_info", 32))
    architected = info.target in SINCE_GFX942
    if descriptor.enable_private_segment and not architected:
        words.append(z3.BitVec("scratch_offset", 32))
    for at, word in enumerate(words):
        state.set_scalar(at, word)
    state.set_scalar(isa.EXEC, lanes.started)
    if architected:
        state.set_scalar(isa.FLAT_SCRATCH, z3.BitVec("flat_scratch", 64))
    ids = [item_id(axis, lanes) for axis in AXES]
    if info.target != "gfx908":  # packed; 0 for an id that the kernel does not ask for, which LLVM relies on
        packed = [part if at <= descriptor.workitem_id_mode else number(0, 10) for at, part in enumerate(ids)]
        state.registers["v", 0] = concat(*packed, number(0, 2))
    else:
        for at in range(descriptor.workitem_id_mode + 1):
            state.registers["v", at] = fold(z3.ZeroExt(22, ids[at]))
    return state


def _user_words(inputs: KernelInputs) -> list[Term]:
    """Returns the user SGPRs, as `engine.workers.initial_state.user_sgprs` fills them."""
    descriptor = inputs.info.descriptor
    words: list[Term] = []

    def pair(whole: Term) -> None:
        words.extend((bits_of(whole, 0, 32), bits_of(whole, 32, 32)))

    if descriptor.enable_private_segment_buffer:
        words += [z3.BitVec("scratch_base", 32), z3.BitVec("scratch_word1", 32), number(-1, 32), number(3 << 21 | 1 << 23, 32)]
    for enabled, symbol in (
        (descriptor.enable_dispatch_ptr, inputs.dispatch),
        (descriptor.enable_queue_ptr, z3.BitVec("queue", 64)),
        (descriptor.enable_kernarg_segment_ptr, inputs.kernarg),
        (descriptor.enable_dispatch_id, z3.BitVec("dispatch_id", 64)),
        (descriptor.enable_flat_scratch_init, z3.BitVec("flat_scratch_init", 64)),
    ):
        if enabled:
            pair(symbol)
    if descriptor.enable_private_segment_size:
        words.append(z3.BitVec(f"{inputs.name}.private_segment_size", 32))
    if descriptor.preload_length:
        raw = inputs.argument_bytes(4 * descriptor.preload_offset, 4 * descriptor.preload_length)
        words += [bits_of(raw, 32 * at, 32) for at in range(descriptor.preload_length)]
    return words
