"""Remedies for two unordered accesses to device memory, in terms of the instruction set and of the source language."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simgpu.checks.races.knowledge import INVALIDATE, NOTHING, SCALAR_STALE, SCOPE, WAIT, WRITE_BACK
from simgpu.checks.races.overlap import place_of_site
from simgpu.engine.positions import location_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.memory_model import BITS, Scope, lowering, scope_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch


class Remedy(NamedTuple):
    """Kind of a finding and the text of its remedy, empty if nothing was released and observed."""

    kind: str
    text: str


Endings = tuple[str, ...]
HIP: Endings = (".hip", ".cu", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".cuh", ".inl")
OPENCL: Endings = (".cl",)
PYTHON: Endings = (".py",)
# Source words for release, acquire and scope, by the end of the file name, between waves of a workgroup, between workgroups of a
# device, and between devices.
WORDS = {
    HIP: {
        Scope.WORKGROUP: (
            "__threadfence_block() before it, or __ATOMIC_RELEASE", "__threadfence_block() after it, or __ATOMIC_ACQUIRE",
            "__HIP_MEMORY_SCOPE_WORKGROUP",
        ),
        Scope.AGENT: (
            "__threadfence() before it, or __ATOMIC_RELEASE", "__threadfence() after it, or __ATOMIC_ACQUIRE",
            "__HIP_MEMORY_SCOPE_AGENT",
        ),
        Scope.SYSTEM: (
            "__threadfence_system() before it, or __ATOMIC_RELEASE", "__threadfence_system() after it, or __ATOMIC_ACQUIRE",
            "__HIP_MEMORY_SCOPE_SYSTEM",
        ),
    },
    OPENCL: {
        Scope.WORKGROUP: ("memory_order_release", "memory_order_acquire", "memory_scope_work_group"),
        Scope.AGENT: ("memory_order_release", "memory_order_acquire", "memory_scope_device"),
        Scope.SYSTEM: ("memory_order_release", "memory_order_acquire", "memory_scope_all_svm_devices"),
    },
    PYTHON: {
        Scope.WORKGROUP: ('sem="release"', 'sem="acquire"', 'scope="cta"'),
        Scope.AGENT: ('sem="release"', 'sem="acquire"', 'scope="gpu"'),
        Scope.SYSTEM: ('sem="release"', 'sem="acquire"', 'scope="sys"'),
    },
}  # fmt: skip
COARSE = (
    "is in coarse-grained memory, which orders nothing between GPUs while kernels run: allocate the flag by hipExtMallocWithFlags "
    "(fine-grained or uncached), hipHostMalloc or hipMallocManaged"
)
APART = {Scope.WORKGROUP: "waves of a workgroup", Scope.AGENT: "workgroups", Scope.SYSTEM: "GPUs"}
WAVEFRONT = Scope.WAVEFRONT.words
Place = tuple["Dispatch", int]  # a launch and a record of it


def remedy_of(launch: Dispatch, needed: Scope, lack: int, release: int, observed: int) -> Remedy:
    """Returns the remedy for an access that should have been ordered.

    needed: the scope of the two waves. lack: NOTHING to SCALAR_STALE. release, observed: numbers of the records that should have
    ordered them, as nodes hold them
    """
    if lack == NOTHING:
        return Remedy("race", "")
    releasing, observing, split = place_of_site(launch, release), place_of_site(launch, observed), launch.info.descriptor.tg_split
    if lack == SCALAR_STALE:
        return Remedy("stale-read", _scalar(releasing, observing, observed))
    let, saw = _instruction_name(releasing), _instruction_name(observing)
    scope = needed.words + (" in tgsplit mode" if needed == Scope.WORKGROUP else "")
    releases, acquires, scope_words = _words(releasing, needed)
    fence = lowering(launch.arch, "fence", "acq_rel", needed, split)
    back = " and ".join((*fence.before, "s_waitcnt vmcnt(0)"))
    if lack == SCOPE:
        has, apart = [_scope(place) for place in (releasing, observing)], APART[needed]
        if min(has) >= needed:
            return Remedy("race", f"{let} is observed by {saw}, but what it writes {COARSE}")
        return Remedy(
            "race", f"{let} has scope {has[0].words} and {saw} scope {has[1].words}, which order nothing between {apart}: "
            f"both need scope {scope}{scope_words}",
        )  # fmt: skip
    if lack == WAIT:
        return Remedy(
            "race", f"release without vmcnt: {let} does not wait until the earlier access is complete, so that {saw} orders "
            f"nothing: {back} needed before the release, scope {scope}{releases}",
        )  # fmt: skip
    if lack == WRITE_BACK:
        where = "another GPU's" if needed == Scope.SYSTEM else "another XCD's"
        return Remedy(
            "stale-read", f"ordered by {let} and {saw}, but the store has scope {WAVEFRONT} and may still be in {where} L2: "
            f"{back} needed before the release, scope {scope}{releases}",
        )  # fmt: skip
    assert lack == INVALIDATE
    has_scope = scope_of(launch.arch, "load", (), split).words
    return Remedy(
        "stale-read", f"ordered by {let} and {saw}, but the load has scope {has_scope} and may find an "
        f"older copy in its caches: {' and '.join(fence.after)} needed after the acquire, scope {scope}{acquires}",
    )  # fmt: skip


def _scalar(releasing: Place, observing: Place, observed: int) -> str:
    """Returns the text about a scalar load that may find an older copy."""
    if not observed:
        return "no store reaches the scalar cache, which may hold an older copy: s_dcache_inv needed after the store's wait"
    let, saw = _instruction_name(releasing), _instruction_name(observing)
    return f"ordered by {let} and {saw}, but the scalar cache may hold an older copy: s_dcache_inv needed after the acquire"


def _instruction_name(place: Place) -> str:
    """Returns an instruction with its place in the source."""
    at = location_of(*place)
    return f"`{at.text}`" + (f" ({at.source})" if at.source else f" at {at.name}")


def _scope(place: Place) -> Scope:
    """Returns the scope of a record's access."""
    launch, record = place
    inst: Instruction | None = launch.instruction(record)
    assert inst is not None and inst.spec.memory is not None
    bits = [bit for bit in BITS if inst.mods.get(bit)]
    return scope_of(launch.arch, inst.spec.memory.op, bits, launch.info.descriptor.tg_split)


def _words(place: Place, needed: Scope) -> tuple[str, str, str]:
    """Returns release, acquire and scope in the source language, in parentheses; empty for assembly."""
    by_scope = WORDS.get(language_of(location_of(*place).source))
    if by_scope is None:
        return "", "", ""
    releases, acquires, scope = by_scope[needed]
    return f" ({releases}, {scope})", f" ({acquires}, {scope})", f" ({scope})"


def language_of(source: str) -> Endings:
    """Returns the endings of file names that the language of a place, `file:line`, has: HIP, OPENCL, PYTHON, or ()."""
    file = source.rpartition(":")[0]
    return next((endings for endings in WORDS if file.endswith(endings)), ())
