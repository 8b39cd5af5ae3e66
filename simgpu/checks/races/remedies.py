"""Remedies for two unordered accesses to device memory, in terms of the instruction set and of the source language."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.checks.races.knowledge import INVALIDATE, NOTHING, SCALAR_STALE, SCOPE, WAIT, WRITE_BACK
from simgpu.engine.positions import location_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.memory_model import BITS, Scope, lowering, scope_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch


class Remedy(NamedTuple):
    """Kind of a finding and the text of its remedy, empty if nothing was released and observed."""

    kind: str
    text: str


# Source words for release, acquire, and an agent's scope, by the end of the file name.
WORDS = {
    (".hip", ".cu", ".cpp", ".h", ".hpp", ".cuh"): (
        "__threadfence() before it, or __ATOMIC_RELEASE", "__threadfence() after it, or __ATOMIC_ACQUIRE",
        "__HIP_MEMORY_SCOPE_AGENT",
    ),
    (".cl",): ("memory_order_release", "memory_order_acquire", "memory_scope_device"),
    (".py",): ('sem="release"', 'sem="acquire"', 'scope="gpu"'),
}  # fmt: skip
AGENT, WAVEFRONT = Scope.AGENT.words, Scope.WAVEFRONT.words


def remedy_of(launch: Dispatch, lack: int, release: int, observed: int) -> Remedy:
    """Returns the remedy for an access with a lack, NOTHING to SCALAR_STALE, between two records that should have ordered it."""
    if lack == NOTHING:
        return Remedy("race", "")
    if lack == SCALAR_STALE:
        return Remedy("stale-read", _scalar(launch, release, observed))
    let, saw = _instruction_name(launch, release), _instruction_name(launch, observed)
    releases, acquires, device = _words(launch, release)
    fence = lowering(launch.arch, "fence", "acq_rel", Scope.AGENT)
    back = " and ".join((*fence.before, "s_waitcnt vmcnt(0)"))
    if lack == SCOPE:
        has = [_scope(launch, record).words for record in (release, observed)]
        return Remedy(
            "race", f"{let} has scope {has[0]} and {saw} scope {has[1]}, which order nothing between workgroups: "
            f"both need scope {AGENT}{device}",
        )  # fmt: skip
    if lack == WAIT:
        return Remedy(
            "race", f"release without vmcnt: {let} does not wait until the earlier access is complete, so that {saw} orders "
            f"nothing: {back} needed before the release, scope {AGENT}{releases}",
        )  # fmt: skip
    if lack == WRITE_BACK:
        return Remedy(
            "stale-read", f"ordered by {let} and {saw}, but the store has scope {WAVEFRONT} and may still be in another XCD's L2: "
            f"{back} needed before the release, scope {AGENT}{releases}",
        )  # fmt: skip
    assert lack == INVALIDATE
    has_scope = scope_of(launch.arch, "load", ()).words
    return Remedy(
        "stale-read", f"ordered by {let} and {saw}, but the load has scope {has_scope} and may find an "
        f"older copy in its caches: {' and '.join(fence.after)} needed after the acquire, scope {AGENT}{acquires}",
    )  # fmt: skip


def _scalar(launch: Dispatch, release: int, observed: int) -> str:
    """Returns the text about a scalar load that may find an older copy."""
    if not observed:
        return "no store reaches the scalar cache, which may hold an older copy: s_dcache_inv needed after the store's wait"
    let, saw = _instruction_name(launch, release), _instruction_name(launch, observed)
    return f"ordered by {let} and {saw}, but the scalar cache may hold an older copy: s_dcache_inv needed after the acquire"


def _instruction_name(launch: Dispatch, record: int) -> str:
    """Returns an instruction with its place in the source."""
    at = location_of(launch, record)
    return f"`{at.text}`" + (f" ({at.source})" if at.source else f" at {at.name}")


def _scope(launch: Dispatch, record: int) -> Scope:
    """Returns the scope of a record's access."""
    inst: Instruction | None = launch.instruction(record)
    assert inst is not None and inst.spec.memory is not None
    return scope_of(launch.arch, inst.spec.memory.op, [bit for bit in BITS if inst.mods.get(bit)])


def _words(launch: Dispatch, record: int) -> tuple[str, str, str]:
    """Returns release, acquire and device scope in the source language, in parentheses; empty for assembly."""
    source = location_of(launch, record).source.rpartition(":")[0]
    for endings, (releases, acquires, device) in WORDS.items():
        if source.endswith(endings):
            return f" ({releases}, {device})", f" ({acquires}, {device})", f" ({device})"
    return "", "", ""
