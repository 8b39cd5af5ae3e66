"""Data of a launch for the memory model: scopes of its accesses, and memory for nodes, lists and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simgpu.checks.races.knowledge import KNOWN_BYTES, LINK_BYTES, LINKS, NODE_BYTES, NODES, STACK
from simgpu.checks.races.order import ORDER_BYTES, VIEWS, RaceBlock
from simgpu.checks.races.overlap import MOST_GROUPS, STRIDE, OverlapMember
from simgpu.checks.races.storage import lazy_zeros
from simgpu.engine.program import Program
from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import Scope, cache_bits, lowering, scope_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

DEVICE_SPACES = ("global", "flat", "buffer", "tbuffer", "smem")


class ProgramModel(NamedTuple):
    """Memory model of a kernel's accesses."""

    scopes: np.ndarray  # (records + 1,) uint8: `Scope` of each record's access
    synchronises: bool  # True if anything that the kernel reaches may observe a release
    split: bool  # True in tgsplit mode
    narrow: bool  # True if an atomic load or store may have a scope that excludes other workgroups


class SharedOrder(NamedTuple):
    """State that the workers of a launch share, and launches that overlap."""

    model: ProgramModel
    scopes: np.ndarray  # as of the model, or of all launches that overlap
    synchronises: bool  # True if this launch, or one that overlaps, may observe a release
    stride: int  # numbers of waves from one workgroup to the next
    waves: int  # numbers of waves
    nodes: np.ndarray  # bytes of `OrderNode`
    links: np.ndarray  # bytes of `LocationLink`
    counts: np.ndarray  # numbers of nodes and links in use, and the latest link of an arrival at ds_gws_barrier
    segments: np.ndarray  # i64 for each wave: node of its latest segment


def model_of(program: Program, entry: int, target: str, split: bool) -> ProgramModel:
    """Returns the model of the code that a wave reaches from record `entry`, cached with the program. split: tgsplit mode"""
    key = "memory model, tgsplit" if split else "memory model", entry
    if key not in program.kept:
        scopes = np.full(program.count + 1, Scope.AGENT, np.uint8)
        synchronises, narrow = split, False
        for at in program.executable(entry):
            inst = program.instructions[at]
            memory = inst.spec.memory
            if inst.spec.control in (ControlKind.CACHE, ControlKind.DCACHE, ControlKind.GWS, *INDIRECT):
                synchronises = True
            if memory is None or memory.space not in DEVICE_SPACES:
                continue
            bits = cache_bits(inst.mods)
            scopes[at] = scope_of(target, memory.op, bits, split)
            if memory.op != "store" and bits:  # an atomic that returns, or a load past a cache
                synchronises = True
            if memory.op != "atomic" and bits:
                narrow |= bool(scopes[at] < Scope.AGENT)
        program.kept[key] = ProgramModel(scopes, synchronises, split, narrow)
    model: ProgramModel = program.kept[key]
    return model


def shared_order(launch: Dispatch, model: ProgramModel, member: OverlapMember | None) -> SharedOrder:
    """Returns memory for all workers of a launch. The host allocates it page by page when it is touched."""
    if member is not None:
        common = member.overlap
        return SharedOrder(
            model, common.scopes, True, STRIDE, STRIDE * MOST_GROUPS, common.nodes, common.links, common.counts, common.segments
        )
    waves = launch.groups * launch.waves
    room = int(model.synchronises)
    return SharedOrder(
        model, model.scopes, model.synchronises, launch.waves, waves,
        lazy_zeros(room * NODE_BYTES * (NODES + 1)), lazy_zeros(room * LINK_BYTES * (LINKS + 1)),
        np.zeros(3, np.int64), lazy_zeros(room * 8 * waves),
    )  # fmt: skip


def give_order(
    launch: Dispatch, shared: SharedOrder, member: OverlapMember | None, block: RaceBlock, slots: int
) -> list[np.ndarray]:
    """Sets a worker's block. Returns arrays that must live as long as the launch runs."""
    room, waves, target = int(shared.synchronises), launch.waves, launch.arch
    orders = lazy_zeros(ORDER_BYTES * slots * waves)
    known = lazy_zeros(room * KNOWN_BYTES * VIEWS * slots * waves * shared.waves, sparse=member is not None)
    stack = np.zeros(STACK, np.int64)
    old = target in BEFORE_GFX942
    block.synchronises, block.stores_release, block.split = shared.synchronises, old, shared.model.split
    block.narrow = shared.model.narrow or (member is not None and not old)
    block.through[:] = [needs_no_write_back(target, scope) for scope in (Scope.AGENT, Scope.SYSTEM)]
    block.scopes, block.waves, block.stride, block.total = shared.scopes.ctypes.data, waves, shared.stride, shared.waves
    block.orders, block.known, block.stack = (array.ctypes.data for array in (orders, known, stack))
    block.nodes, block.links, block.counts = (array.ctypes.data for array in (shared.nodes, shared.links, shared.counts))
    block.segments, block.records = shared.segments.ctypes.data, launch.program.count
    if member is not None:
        block.first_group, block.first_site = member.first_group, member.first_site
        block.launch = member.number
        common = member.overlap
        block.devices, block.launches, block.ended = (a.ctypes.data for a in (common.devices, common.launches, common.ended))
    return [orders, known, stack]


def needs_no_write_back(target: str, scope: Scope) -> bool:
    """True if stores are available to a scope when they are complete."""
    return not lowering(target, "fence", "release", scope).before
