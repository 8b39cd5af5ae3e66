"""State at a kernel's entry, as terms: arguments, ids of its workgroup and work-item, and registers.

Both kernels get the same terms for what a launch decides. Undefined values have other names in each kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import z3

from simgpu.engine.workers.initial_state import mode_register
from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.code_object.code_object import Argument, CodeObject, KernelInfo
from simgpu.hardware.code_object.elf import RELOCATIONS
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, fold, number
from simgpu.proof.memory_log import MemoryLog
from simgpu.proof.roots import POINTER, Address, Roots, initial_bytes
from simgpu.proof.state import WaveState
from simgpu.proof.terms import Lanes, NotModelled

Term = Any
CODE_BASE = 1 << 46  # where the code object's addresses begin, for addresses that code computes from the program counter
POINTER_BYTES = 8
WORD = 4  # bytes from one entry of a table to the next, or fewer
MOST_ENTRIES = 64  # of a table
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
    variables: tuple[range, ...] = ()  # addresses of global variables whose content is unknown, as in the file

    def has_variable(self, offset: int) -> bool:
        """True if an address is that of a global variable whose content is unknown."""
        return any(offset - self.code_base in each for each in self.variables)

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
        """Returns bytes of the code object's constants, by the file's virtual address, and addresses of global variables."""
        found = [self._addresses.get(address + at) for at in range(0, size, POINTER_BYTES)]
        if None not in found and size % POINTER_BYTES == 0:
            return concat(*(number(self.code_base + each, 64) for each in found if each is not None))
        for segment in self.code.segments:
            if segment.address <= address and address + size <= segment.end and not segment.writable:
                return number(int.from_bytes(self.code.read(address, size), "little"), 8 * size)
        raise NotModelled("a global variable")

    def table_bytes(self, place: Address, size: int) -> Term:
        """Returns bytes at an address that depends on the launch, from a place in the code object's constants on."""
        first = place.offset - self.code_base
        for segment in self.code.segments:
            if segment.address <= first < segment.end and not segment.writable:
                count = min(segment.end - first, MOST_ENTRIES * min(WORD, size) + size - 1)
                return choose_entry(place, self.code.read(first, count), 0, size)
        raise NotModelled("a global variable")

    @cached_property
    def _addresses(self) -> dict[int, int]:
        """Addresses that the loader writes, by their places."""
        kinds = {kind for kind, (size, _, relative) in RELOCATIONS.items() if size == POINTER_BYTES and not relative}
        return {each.place: each.value + each.addend for each in self.code.relocations if each.kind in kinds}

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


def choose_entry(place: Address, content: bytes, start: int, size: int) -> Term:
    """Returns bytes of a table at an address that depends on the launch: unknown ones if it is none of the entries'.

    start: of the place's constant in the content. Raises NotModelled for a large table.
    """
    step = min(WORD, size)
    entries = range(0, len(content) - size + 1, step)
    if len(entries) > MOST_ENTRIES:
        raise NotModelled(f"a table of more than {MOST_ENTRIES} constants")
    found = initial_bytes("table", place.root, place.offset, size)
    for at in reversed(entries):
        entry = number(int.from_bytes(content[at : at + size], "little"), 8 * size)
        found = choose(fold(place.root == number(at - start, 64)), entry, found)
    return found


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
