"""Memory instructions on terms: addresses, the bytes that a lane loads and stores, atomic operations."""

from __future__ import annotations

from typing import Any

import z3

from simgpu.hardware.isa.instruction import Imm, Instruction, Off, Operand, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, fold, number
from simgpu.hardware.isa.types import u32
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE
from simgpu.proof import buffers
from simgpu.proof.buffers import BufferPlace
from simgpu.proof.entry import KernelInputs
from simgpu.proof.roots import CODE, GLOBAL, LDS, PRIVATE, Address, Roots
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled, flat_sum, is_number

Term = Any
APERTURES = {SHARED_APERTURE: LDS, PRIVATE_APERTURE: PRIVATE}
# The last words of the resource that private memory is accessed by (`engine.workers.initial_state`).
PRIVATE_RESOURCE = (0xFFFFFFFF, 3 << 21 | 1 << 23)


def run_memory(state: WaveState, inst: Instruction, inputs: KernelInputs) -> None:
    """Runs a load, a store or an atomic operation."""
    memory = inst.spec.memory
    if memory is None:
        raise NotModelled(f"{inst.mnemonic}, a clock")
    if memory.lds or inst.mods.get("lds") or memory.transpose or inst.mods.get("gds") or inst.mods.get("tfe"):
        raise NotModelled(f"{inst.mnemonic}{' lds' if inst.mods.get('lds') else ''}")
    if inst.spec.flags & {Flag.SRC2, Flag.ADDTID}:
        raise NotModelled(inst.mnemonic)
    if inst.spec.encoding == "smem":
        _scalar_load(state, inst, inputs)
        return
    if memory.space in ("buffer", "tbuffer") and not _is_private(state, inst):
        _run_buffer(state, inst, _buffer_place(state, inst), inputs)
    else:
        _run_at(state, inst, _addresses(state, inst), inputs, z3.BoolVal(True))


def _run_at(state: WaveState, inst: Instruction, places: list[Address], inputs: KernelInputs, inside: Term) -> None:
    """Runs an access of known places. inside: the condition that it is in the buffer's range."""
    memory = inst.spec.memory
    assert memory is not None
    ours = any(place.space == GLOBAL and place.base in ("", CODE) and _is_code(place, inputs) for place in places)
    if ours and memory.op != "load":
        raise NotModelled("a store to a global variable")
    if memory.op == "load":
        _load(state, inst, places, inputs, inside)
    elif memory.op == "store":
        _store(state, inst, places, every(state.guard, inside))
    else:
        _atomic(state, inst, places, inside)


def _is_code(place: Address, inputs: KernelInputs) -> bool:
    return place.offset >= inputs.code_base and not inputs.has_variable(place.offset)


def _register(inst: Instruction, *names: str) -> Reg:
    for name in names:
        operand = inst.args.get(name)
        if isinstance(operand, Reg):
            return operand
    raise NotModelled(f"{inst.mnemonic} without a register")


def _operand(state: WaveState, operand: Operand | None, bits: int = 32) -> Term:
    """Returns an address operand; 0 if it is absent."""
    if operand is None or isinstance(operand, Off):
        return number(0, bits)
    return state.operand(operand, u32, bits)


# -- addresses ---------------------------------------------------------------------------------


def _addresses(state: WaveState, inst: Instruction) -> list[Address]:
    """Returns the lane's addresses: one, or two for ds_read2."""
    memory = inst.spec.memory
    assert memory is not None
    offset, place = int(inst.mods.get("offset", 0)), state.memory.roots.place
    if memory.space == "ds":
        base = _operand(state, inst.args.get("addr"))
        if memory.count == 1:
            return [place(LDS, fold(base + offset))]
        scale = memory.stride * memory.bits // 8
        return [place(LDS, fold(base + scale * int(inst.mods.get(name, 0)))) for name in ("offset0", "offset1")]
    if memory.space == "buffer":
        return [_private_buffer(state, inst, offset)]
    if memory.space == "scratch":
        parts = [_operand(state, inst.args.get(name)) for name in ("saddr", "vaddr")]
        return [place(PRIVATE, fold(parts[0] + parts[1]) + offset)]
    saddr = inst.args.get("saddr")
    if isinstance(saddr, Reg):
        low = _operand(state, inst.args.get("vaddr"))
        return [place(GLOBAL, state.scalar(saddr.index, 64) + fold(z3.ZeroExt(32, low)) + offset)]
    whole = _operand(state, inst.args.get("vaddr"), 64)
    if memory.space == "flat":
        return [flat_place(state.memory.roots, whole, offset)]
    return [place(GLOBAL, whole + number(offset, 64))]


def flat_place(roots: Roots, whole: Term, offset: int) -> Address:
    """Returns the place of a flat address: its high half, or the pointer in the sum, says in which space."""
    whole = _not_null(whole)
    found = roots.place(GLOBAL, whole + number(offset, 64))
    if found.base:
        return found
    high = z3.simplify(bits_of(whole, 32, 32))
    if z3.is_bv_value(high) and high.as_long() in APERTURES:
        return roots.place(APERTURES[high.as_long()], bits_of(whole, 0, 32) + number(offset, 32))
    return _by_parts(roots, whole, offset)


def _not_null(whole: Term) -> Term:
    """Returns an address without the null that a cast of a null pointer makes, as an access leaves no buffer."""
    high = z3.simplify(bits_of(whole, 32, 32))
    if not z3.is_app_of(high, z3.Z3_OP_ITE):
        return whole
    arms = [arm.as_long() if z3.is_bv_value(arm) else None for arm in high.children()[1:]]
    for null, other in ((0, 1), (1, 0)):
        if arms[null] == 0 and arms[other] in APERTURES:
            return z3.simplify(z3.substitute(z3.simplify(whole), (high.arg(0), z3.BoolVal(null == 1))))
    return whole


def _by_parts(roots: Roots, whole: Term, offset: int) -> Address:
    """Returns the place of a sum with an aperture: offsets from it stay in it."""
    parts = flat_sum(z3.simplify(whole))
    for at, part in enumerate(parts):
        high = z3.simplify(bits_of(part, 32, 32))
        if z3.is_bv_value(high) and high.as_long() in APERTURES:
            rest = [bits_of(other, 0, 32) for n, other in enumerate(parts) if n != at]
            return roots.place(APERTURES[high.as_long()], sum(rest, bits_of(part, 0, 32)) + number(offset, 32))
    raise NotModelled("a flat address that may be in any memory")


def _is_private(state: WaveState, inst: Instruction) -> bool:
    """True if a buffer access goes through the resource of private memory."""
    resource = _register(inst, "srsrc")
    words = [state.scalar(resource.index + i) for i in (2, 3)]
    return [word.as_long() if z3.is_bv_value(word) else None for word in words] == list(PRIVATE_RESOURCE)


def _private_buffer(state: WaveState, inst: Instruction, offset: int) -> Address:
    if inst.mods.get("idxen"):
        raise NotModelled(f"{inst.mnemonic} idxen")
    parts = [_operand(state, inst.args.get("soffset"))]
    if inst.mods.get("offen"):
        parts.append(_operand(state, inst.args.get("vaddr")))
    return state.memory.roots.place(PRIVATE, sum(parts, number(offset, 32)))


def _buffer_place(state: WaveState, inst: Instruction) -> BufferPlace:
    """Returns the operands of a buffer access."""
    memory = inst.spec.memory
    assert memory is not None
    offset = number(int(inst.mods.get("offset", 0)), 32)
    index: Term = None
    addressed = bool(inst.mods.get("idxen")) + bool(inst.mods.get("offen"))
    if addressed:
        whole = _operand(state, inst.args.get("vaddr"), 32 * addressed)
        index = bits_of(whole, 0, 32) if inst.mods.get("idxen") else None
        if inst.mods.get("offen"):
            offset = fold(bits_of(whole, 32 * (addressed - 1), 32) + offset)
    form = int(inst.mods.get("format", 0)) if memory.format else None
    soffset = _operand(state, inst.args.get("soffset"))
    return BufferPlace(_resource(state, _register(inst, "srsrc")), index, offset, soffset, form)


def _resource(state: WaveState, register: Reg) -> tuple[Term, Term, Term, Term]:
    """Returns the words of a resource."""
    a, b, c, d = (state.scalar(register.index + at) for at in range(4))
    return a, b, c, d


def _run_buffer(state: WaveState, inst: Instruction, place: BufferPlace, inputs: KernelInputs) -> None:
    """Runs an access through a resource."""
    memory = inst.spec.memory
    assert memory is not None
    found = place.linear(state.memory.roots, memory.bits * memory.count // 8)
    if found is not None:
        _run_at(state, inst, [found[0]], inputs, found[1])
        return
    _needs_operands(state, inst)
    guard = every(state.guard)
    if memory.op == "load":
        _set_loaded(state, inst, buffers.load(state.memory, place, memory.bits * memory.count, memory.count))
    elif memory.op == "store":
        data = _stored_bits(state, inst, memory.bits * memory.count, "vdata")
        buffers.store(state.memory, place, data, memory.count, guard, state.pc)
    else:
        operation = inst.mnemonic.partition("atomic_")[2]
        _set_old(state, inst, buffers.atomic(state.memory, place, operation, _atomic_data(state, inst), guard, state.pc))


def _needs_operands(state: WaveState, inst: Instruction) -> None:
    if not state.memory.knows_operands:
        raise NotModelled(f"{inst.mnemonic} of a buffer whose resource is unknown")


# -- loads and stores --------------------------------------------------------------------------


def _load(state: WaveState, inst: Instruction, places: list[Address], inputs: KernelInputs, inside: Term) -> None:
    memory = inst.spec.memory
    assert memory is not None
    known, guard = state.known_ids(), every(state.guard, inside)
    size = memory.bits * (1 if len(places) == 2 else memory.count) // 8
    parts = [read_bytes(state, place, size, known, guard, inputs) for place in places]
    data = concat(*parts)
    _set_loaded(state, inst, choose(inside, data, number(0, data.size())))


def _set_loaded(state: WaveState, inst: Instruction, data: Term) -> None:
    """Sets the registers of a load."""
    memory, target = inst.spec.memory, _register(inst, "vdst", "vdata")
    assert memory is not None
    if data.size() % 32 and memory.format:
        data = concat(data, number(0, -data.size() % 32))
    elif data.size() < 32:
        wanted = 16 if memory.d16 else 32
        if data.size() < wanted:
            data = fold((z3.SignExt if memory.sign else z3.ZeroExt)(wanted - data.size(), data))
        if memory.d16:
            old = state.vector(target)
            data = concat(data, bits_of(old, 16, 16)) if memory.d16 == "lo" else concat(bits_of(old, 0, 16), data)
    state.set_vector(target, data)


def read_bytes(state: WaveState, place: Address, size: int, known: set[int], guard: Term, inputs: KernelInputs) -> Term:
    """Returns bytes of memory: of the kernel's arguments and constants, or of what the log knows."""
    if place.space == GLOBAL:
        if place.root.eq(inputs.kernarg):
            return inputs.argument_bytes(place.offset, size)
        if place.root.eq(inputs.dispatch):
            return inputs.packet_bytes(place.offset, size)
        if _is_code(place, inputs):
            if not is_number(place.root, 0):
                return inputs.table_bytes(place, size)
            return inputs.constant_bytes(place.offset - inputs.code_base, size)
    return state.memory.load(place, size, known, guard, state.pc)


def _store(state: WaveState, inst: Instruction, places: list[Address], guard: Term) -> None:
    memory = inst.spec.memory
    assert memory is not None
    names = (("data0", "vdata"), ("data1",))
    for place, name in zip(places, names, strict=False):
        bits = memory.bits * (1 if len(places) == 2 else memory.count)
        state.memory.store(place, _stored_bits(state, inst, bits, *name), guard, state.pc)


def _stored_bits(state: WaveState, inst: Instruction, bits: int, *names: str) -> Term:
    """Returns the bits that a store takes from its registers. names: their operand's possible ones."""
    memory = inst.spec.memory
    assert memory is not None
    data = state.vector(_register(inst, *names), -(-bits // 32) * 32)
    return bits_of(data, 16 if memory.d16 == "hi" else 0, bits)


def _atomic(state: WaveState, inst: Instruction, places: list[Address], inside: Term) -> None:
    memory = inst.spec.memory
    assert memory is not None
    if len(places) > 1 or places[0].space == PRIVATE:
        raise NotModelled(inst.mnemonic)
    operation = inst.mnemonic.replace("_rtn_", "_").partition("atomic_")[2] or inst.mnemonic.replace("_rtn_", "_")
    old = state.memory.atomic(operation, places[0], tuple(_atomic_data(state, inst)), every(state.guard, inside), state.pc)
    _set_old(state, inst, choose(inside, old, number(0, 64)))


def _atomic_data(state: WaveState, inst: Instruction) -> list[Term]:
    """Returns the data operands of an atomic operation."""
    registers = (inst.args.get(name) for name in ("vdata", "data0", "data1"))
    return [state.vector(register, 32 * register.count) for register in registers if isinstance(register, Reg)]


def _set_old(state: WaveState, inst: Instruction, old: Term) -> None:
    """Writes memory's value before an atomic operation to its register, if it returns one."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.returns or inst.mods.get("glc") or inst.mods.get("sc0"):
        state.set_vector(_register(inst, "vdst", "vdata"), bits_of(old, 0, memory.bits))


def _scalar_load(state: WaveState, inst: Instruction, inputs: KernelInputs) -> None:
    memory = inst.spec.memory
    assert memory is not None
    if memory.op != "load" or memory.space not in ("smem", "buffer"):
        raise NotModelled(inst.mnemonic)
    if memory.space == "buffer":
        _scalar_buffer_load(state, inst, inputs)
        return
    base = state.scalar(_register(inst, "sbase").index, 64)
    extra = inst.args.get("soffset")
    distance = number(int(inst.mods.get("offset", 0)), 64)
    if isinstance(extra, Imm):
        distance = number(distance.as_long() + extra.value, 64)
    elif isinstance(extra, Reg):
        distance = fold(z3.ZeroExt(32, state.scalar(extra.index))) + distance
    place = state.memory.roots.place(GLOBAL, base + distance)
    guard = z3.And(*state.path) if state.path else z3.BoolVal(True)
    data = read_bytes(state, place, memory.bits * memory.count // 8, state.known_ids(active=False), guard, inputs)
    if state.lanes.varies(data):
        raise NotModelled("a scalar load of what a lane stored")
    state.set_scalar(_register(inst, "sdst").index, data)


def _scalar_buffer_load(state: WaveState, inst: Instruction, inputs: KernelInputs) -> None:
    memory, extra = inst.spec.memory, inst.args.get("soffset")
    assert memory is not None
    bits = memory.bits * memory.count
    offset = number(int(inst.mods.get("offset", 0)), 32)
    if isinstance(extra, Imm):
        offset = number(offset.as_long() + extra.value, 32)
    elif isinstance(extra, Reg):
        offset = fold(state.scalar(extra.index) + offset)
    place = BufferPlace(_resource(state, _register(inst, "sbase")), None, offset, number(0, 32))
    found = place.linear(state.memory.roots, bits // 8)
    if found is None:
        _needs_operands(state, inst)
        data = buffers.load(state.memory, place, bits, constant=True)
    else:
        guard = every(*state.path, found[1])
        data = read_bytes(state, found[0], bits // 8, state.known_ids(active=False), guard, inputs)
        data = choose(found[1], data, number(0, bits))
    if state.lanes.varies(data):
        raise NotModelled("a scalar load of what a lane stored")
    state.set_scalar(_register(inst, "sdst").index, data)
