"""Data of a launch for the memory model: scopes of its accesses, and memory for nodes, lists and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simgpu.checks.races.knowledge import KNOWN_BYTES, LINK_BYTES, LINKS, NODE_BYTES, NODES, STACK
from simgpu.checks.races.order import ORDER_BYTES, VIEWS, RaceBlock
from simgpu.checks.races.storage import lazy_zeros
from simgpu.engine.program import Program
from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import BITS as COHERENT_BITS
from simgpu.hardware.memory_model import Scope, scope_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

DEVICE_SPACES = ("global", "flat", "buffer", "tbuffer", "smem")


class ProgramModel(NamedTuple):
    """Memory model of a kernel's accesses."""

    scopes: np.ndarray  # (records + 1,) uint8: `Scope` of each record's access
    synchronises: bool  # True if anything that the kernel reaches may observe a release
    narrow: bool  # True if an atomic load or store may have a scope that excludes other workgroups


class SharedOrder(NamedTuple):
    """State that the workers of a launch share."""

    model: ProgramModel
    before_gfx942: bool  # True for targets before gfx942
    waves: int  # waves of the launch
    nodes: np.ndarray  # bytes of `OrderNode`
    links: np.ndarray  # bytes of `LocationLink`
    counts: np.ndarray  # numbers of nodes and links in use
    segments: np.ndarray  # i64 for each wave: node of its latest segment


def bits_of(inst: Instruction) -> tuple[str, ...]:
    """Returns the modifiers of an instruction that choose a scope."""
    return tuple(bit for bit in COHERENT_BITS if inst.mods.get(bit))


def model_of(program: Program, entry: int, target: str) -> ProgramModel:
    """Returns the model of the code that a wave reaches from record `entry`, cached with the program."""
    key = "memory model", entry
    if key not in program.kept:
        scopes = np.full(program.count + 1, Scope.AGENT, np.uint8)
        synchronises = narrow = False
        for at in program.executable(entry):
            inst = program.instructions[at]
            memory = inst.spec.memory
            if inst.spec.control in (ControlKind.CACHE, ControlKind.DCACHE, *INDIRECT):
                synchronises = True
            if memory is None or memory.space not in DEVICE_SPACES:
                continue
            bits = bits_of(inst)
            scopes[at] = scope_of(target, memory.op, bits)
            if memory.op != "store" and bits:  # an atomic that returns, or a load past a cache
                synchronises = True
            if memory.op != "atomic" and bits:
                narrow |= bool(scopes[at] < Scope.AGENT)
        program.kept[key] = ProgramModel(scopes, synchronises, narrow)
    model: ProgramModel = program.kept[key]
    return model


def shared_order(launch: Dispatch) -> SharedOrder:
    """Returns memory for all workers of a launch. The host allocates it page by page when it is touched."""
    target = launch.arch
    model = model_of(launch.program, launch.entry, target)
    waves = launch.groups * launch.waves
    room = int(model.synchronises)
    return SharedOrder(
        model, target in BEFORE_GFX942, waves,
        lazy_zeros(room * NODE_BYTES * (NODES + 1)), lazy_zeros(room * LINK_BYTES * (LINKS + 1)),
        np.zeros(2, np.int64), lazy_zeros(room * 8 * waves),
    )  # fmt: skip


def give_order(shared: SharedOrder, block: RaceBlock, slots: int, waves: int) -> list[np.ndarray]:
    """Sets a worker's block. Returns arrays that must live as long as the launch runs. waves: of a workgroup."""
    model, room = shared.model, int(shared.model.synchronises)
    orders = lazy_zeros(ORDER_BYTES * slots * waves)
    known = lazy_zeros(room * KNOWN_BYTES * VIEWS * slots * waves * shared.waves)
    stack = np.zeros(STACK, np.int64)
    block.synchronises, block.narrow, block.stores_release = model.synchronises, model.narrow, shared.before_gfx942
    block.scopes, block.waves, block.total = model.scopes.ctypes.data, waves, shared.waves
    block.orders, block.known, block.stack = (array.ctypes.data for array in (orders, known, stack))
    block.nodes, block.links, block.counts = (array.ctypes.data for array in (shared.nodes, shared.links, shared.counts))
    block.segments = shared.segments.ctypes.data
    return [orders, known, stack]
