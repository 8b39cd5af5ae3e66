"""LDS bank conflicts of a loop, counted: addresses of the first workgroup in the simulator, clocks by `lds_banks`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simgpu.asm.builder.instruction import Instr
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import MemoryFault, ToolchainError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules import lds_banks
from simgpu.tools.tables.kernel_use import listing

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.trace import Snapshot

# Bytes behind each pointer, the second where the first are too few: what a raw buffer reaches. The host gives what is touched.
ROOM = (1 << 26, 1 << 31)
PASSES = 2  # of the loop that are looked at: one for each stage of LDS


def lost_clocks(kernel: EmittedKernel, step: EmittedKernel, body: Sequence[Instr]) -> dict[int, float]:
    """Clocks that each LDS access of `body` loses to bank conflicts, by the instruction's id; the mean of a workgroup's waves.

    step: one of `kernel.steps`, which has the loop; its workgroup 0 runs on zeros until it has been through the loop. What it
    never comes to is left out. UnsupportedInstruction for accesses of two addresses a lane.
    """
    code = kernel.assemble()
    places = {offset: instr for offset, instr in _accesses(step, CodeObject.parse(code)).items() if any(instr is i for i in body)}
    if not places:
        return {}
    names = [*kernel.operands, *(name for name, _ in kernel.scratch)]
    try:
        visits = _visits(code, step, names, list(places), ROOM[0])
    except MemoryFault:
        visits = _visits(code, step, names, list(places), ROOM[1])
    lost: Mapping[int, list[int]] = defaultdict(list)
    for visit in visits:
        lost[id(places[visit.pc])].append(_lost(visit, step.target))
    return {instr: float(np.mean(clocks)) for instr, clocks in lost.items()}


def _visits(code: bytes, step: EmittedKernel, names: Sequence[str], places: Sequence[int], room: int) -> list[Snapshot]:
    """What each wave of workgroup 0 holds at the places, with `room` bytes behind each pointer."""
    import simgpu
    from simgpu.trace import trace

    device = simgpu.Device(step.target, threads=1)
    arguments = step.bind({name: device.alloc(room) for name in names})
    kernel, hits = device.load(code)[step.name], PASSES * len(places)
    waves = range(step.block[0] // lds_banks.WAVE)
    return [visit for wave in waves for visit in trace(kernel, places, block=step.block, args=arguments, wave=wave, hits=hits)]


def _accesses(step: EmittedKernel, code: CodeObject) -> dict[int, Instr]:
    """The kernel's LDS accesses by their offset in its code."""
    decoded = listing(code, code.kernels[step.name])
    emitted = [item for item in step.items if isinstance(item, Instr)]
    if len(decoded) != len(emitted):
        raise ToolchainError(f"{step.name}: {len(emitted)} instructions were emitted, the code object has {len(decoded)}")
    pairs = zip(decoded, emitted, strict=True)
    return {offset: instr for (offset, inst, _), instr in pairs if inst is not None and _is_access(inst)}


def _is_access(inst: Instruction) -> bool:
    return inst.spec.encoding == "ds" and inst.spec.memory is not None


def _lost(visit: Snapshot, target: str) -> int:
    inst, memory = visit.instruction, visit.instruction.spec.memory
    assert memory is not None
    if memory.stride or memory.op == "atomic":
        raise UnsupportedInstruction(f"{visit.text}: bank conflicts are counted for plain reads and writes of LDS")
    addresses = visit.registers(inst.args["addr"])[0].astype(np.int64) + inst.mods.get("offset", 0)  # type: ignore[arg-type]
    active = visit.exec >> np.arange(lds_banks.WAVE, dtype=object) & 1
    kind, nbytes = "read" if memory.op == "load" else "write", memory.bits // 8 * memory.count
    return lds_banks.conflicts(target, kind, nbytes, addresses, active.astype(bool))
