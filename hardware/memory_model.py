"""Memory model of each target as a table: the instructions that make an access available or visible, by scope.

Rows are those of LLVM's AMDGPUUsage, "Memory Model" of gfx6-gfx9 (here gfx908), gfx90a and gfx942 (here also gfx950).
Its code sequences define the lowering of each atomic and fence; the terms are those of LLVM's AMDGPUMemoryModel.
`lowering` combines rows into such a sequence. tests/hardware/test_memory_model.py compares the sequences with the code that
LLVM's compiler emits.

A store is available to a scope when it has passed all caches that not all threads of the scope share. The L1 of a CU is written
through, the L2 of an XCD writes back. A load sees a scope's stores if it cannot hit a copy older than the available one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

from simgpu.hardware.architectures import BEFORE_GFX942, GFX90A, GFX908, SINCE_GFX942


class Scope(IntEnum):
    """LLVM's synchronisation scopes, the narrowest first."""

    WAVEFRONT = 0  # one wave
    WORKGROUP = 1  # the waves of a workgroup: a CU with its L1, or, in tgsplit mode, several
    AGENT = 2  # all workgroups of a device: on gfx942 and later up to eight XCDs, with an L2 each
    SYSTEM = 3  # all devices and the host

    @property
    def words(self) -> str:
        """Name of the scope as HIP, OpenCL and LLVM name it."""
        return ("wavefront", "workgroup", "agent", "system")[self]


Kind = Literal["load", "store", "atomic"]
Order = Literal["monotonic", "acquire", "release", "acq_rel", "seq_cst"]
RELEASES, ACQUIRES = ("release", "acq_rel", "seq_cst"), ("acquire", "acq_rel", "seq_cst")
L2_ONLY = "buffer_invl2"  # leaves the L1 as it is
LDS_SCOPE = Scope.WORKGROUP  # of its atomics, whatever scope they have: LDS is one workgroup's, and has no cache
BITS = ("glc", "sc0", "sc1")  # cache bits that choose a scope; slc and nt are hints for replacement and choose none


class Reach(NamedTuple):
    """Widest scope that an access with some cache bits serves."""

    targets: tuple[str, ...]  # targets for which the row holds
    kind: Kind
    bits: tuple[str, ...]  # the access's cache bits, of `BITS`
    scope: Scope  # the widest scope
    split: Scope  # the widest scope in tgsplit mode
    why: str  # the reason, for messages
    source: str  # a row of the code sequences of AMDGPUUsage


class CacheOperation(NamedTuple):
    """A cache operation, and the widest scope to which it makes earlier stores available, or whose stores later loads see."""

    targets: tuple[str, ...]  # targets for which the row holds
    kind: Literal["write back", "invalidate", "scalar invalidate"]
    mnemonic: str
    bits: tuple[str, ...]  # its cache bits, of `BITS`
    scope: Scope  # the widest scope
    why: str  # the caches concerned, for messages
    source: str  # a row of the code sequences of AMDGPUUsage


_OLD, _NEW = "Memory Model GFX6-GFX9 and GFX90A", "Memory Model GFX942"
_W, _G, _A, _S = Scope

REACHES = (
    Reach(BEFORE_GFX942, "load", (), _G, _W, "may hit the CU's L1", f"{_OLD}: load atomic monotonic workgroup"),
    Reach(BEFORE_GFX942, "load", ("glc",), _S, _S, "passes the L1", f"{_OLD}: load atomic monotonic agent, system"),
    Reach(BEFORE_GFX942, "store", (), _S, _S, "the L1 is written through", f"{_OLD}: store atomic monotonic"),
    Reach(BEFORE_GFX942, "store", ("glc",), _S, _S, "the same", f"{_OLD}: store atomic monotonic"),
    Reach(BEFORE_GFX942, "atomic", (), _S, _S, "done by the L2, or beyond", f"{_OLD}: atomicrmw monotonic"),
    Reach(SINCE_GFX942, "load", (), _W, _W, "may hit the L1, and the XCD's L2", f"{_NEW}: load atomic monotonic wavefront"),
    Reach(SINCE_GFX942, "load", ("sc0",), _G, _G, "as far as the workgroup", f"{_NEW}: load atomic monotonic workgroup"),
    Reach(SINCE_GFX942, "load", ("sc1",), _A, _A, "passes L1 and other XCDs' lines", f"{_NEW}: load atomic monotonic agent"),
    Reach(SINCE_GFX942, "load", ("sc0", "sc1"), _S, _S, "passes all caches", f"{_NEW}: load atomic monotonic system"),
    Reach(SINCE_GFX942, "store", (), _W, _W, "stays in the XCD's L2", f"{_NEW}: store atomic monotonic wavefront"),
    Reach(SINCE_GFX942, "store", ("sc0",), _G, _G, "as far as the workgroup", f"{_NEW}: store atomic monotonic workgroup"),
    Reach(SINCE_GFX942, "store", ("sc1",), _A, _A, "written through the L2", f"{_NEW}: store atomic monotonic agent"),
    Reach(SINCE_GFX942, "store", ("sc0", "sc1"), _S, _S, "written through to memory", f"{_NEW}: store atomic monotonic system"),
    Reach(SINCE_GFX942, "atomic", (), _A, _A, "passes the L1; sc0 returns the old value", f"{_NEW}: atomicrmw monotonic agent"),
    Reach(SINCE_GFX942, "atomic", ("sc1",), _S, _S, "beyond the device", f"{_NEW}: atomicrmw monotonic system"),
)

CACHE_OPERATIONS = (
    CacheOperation(GFX90A, "write back", "buffer_wbl2", (), _S, "the L2's dirty lines", "GFX90A: fence release system"),
    CacheOperation(SINCE_GFX942, "write back", "buffer_wbl2", ("sc1",), _A, "the L2's lines", f"{_NEW}: fence release agent"),
    CacheOperation(SINCE_GFX942, "write back", "buffer_wbl2", ("sc0", "sc1"), _S, "all", f"{_NEW}: fence release system"),
    CacheOperation(GFX908, "invalidate", "buffer_wbinvl1_vol", (), _S, "the CU's L1", f"{_OLD}: fence acquire agent, system"),
    CacheOperation(GFX908, "invalidate", "buffer_wbinvl1", (), _S, "the same, non-volatile lines also", f"{_OLD}: fence acquire"),
    CacheOperation(GFX90A, "invalidate", "buffer_wbinvl1_vol", (), _A, "the CU's L1", "GFX90A: fence acquire agent"),
    CacheOperation(GFX90A, "invalidate", "buffer_wbinvl1", (), _A, "the same", "GFX90A: fence acquire agent"),
    CacheOperation(GFX90A, "invalidate", "buffer_invl2", (), _S, "the L2's lines of other devices", "GFX90A: fence acquire system"),
    CacheOperation(SINCE_GFX942, "invalidate", "buffer_inv", ("sc0",), _G, "L1, in tgsplit", f"{_NEW}: fence acquire workgroup"),
    CacheOperation(SINCE_GFX942, "invalidate", "buffer_inv", ("sc1",), _A, "L1, XCDs' lines", f"{_NEW}: fence acquire agent"),
    CacheOperation(SINCE_GFX942, "invalidate", "buffer_inv", ("sc0", "sc1"), _S, "all", f"{_NEW}: fence acquire system"),
    CacheOperation(
        (*BEFORE_GFX942, *SINCE_GFX942), "scalar invalidate", "s_dcache_inv", (), _S, "the scalar cache, which no store writes",
        f"{_OLD}, {_NEW}: scalar memory operations",
    ),
)  # fmt: skip


def cache_bits(modifiers: Mapping[str, object]) -> tuple[str, ...]:
    """Returns those of an instruction's modifiers, by name, that choose a scope.

    >>> cache_bits({"sc1": True, "nt": True, "offset": 4})
    ('sc1',)
    """
    return tuple(bit for bit in BITS if modifiers.get(bit))


def scope_of(target: str, kind: Kind, bits: Iterable[str], split: bool = False) -> Scope:
    """Returns the widest scope that an access serves.

    bits: its modifiers. Those that select no scope are ignored, such as sc0 and glc of an atomic, which return the old value.
    split: True if the kernel runs in tgsplit mode. Raises LookupError for a target without a row.

    >>> scope_of("gfx942", "load", ["sc1"]).name
    'AGENT'
    """
    rows = [row for row in REACHES if row.kind == kind and target in row.targets]
    known = {bit for row in rows for bit in row.bits}
    chosen = {bit for bit in bits if bit in known}
    for row in rows:
        if set(row.bits) == chosen:
            return row.split if split else row.scope
    raise LookupError(f"{target}: no {kind} with {' '.join(sorted(chosen)) or 'no bits'}")


def cache_operation(target: str, mnemonic: str, bits: Iterable[str]) -> CacheOperation | None:
    """Returns the row of a cache operation; None for an instruction, or bits, that order nothing.

    >>> cache_operation("gfx942", "buffer_inv", ["sc1"]).scope.name
    'AGENT'
    """
    chosen = set(bits) & set(BITS)
    rows = (row for row in CACHE_OPERATIONS if target in row.targets and row.mnemonic == mnemonic)
    return next((row for row in rows if set(row.bits) == chosen), None)


class Lowering(NamedTuple):
    """Lowering of an atomic or a fence, in order. Cache operations are texts; waits are for outstanding operations."""

    before: tuple[str, ...]  # cache operations before the wait
    waits: bool  # True: s_waitcnt vmcnt(0) before the access or, in a fence, between `before` and `after`
    bits: tuple[str, ...]  # cache bits of the access
    after: tuple[str, ...]  # cache operations after the access and a wait for it


def lowering(target: str, kind: Kind | Literal["fence"], order: Order, scope: Scope, split: bool = False) -> Lowering:
    """Returns the instructions that the model requires, for global memory.

    >>> lowering("gfx942", "fence", "acq_rel", Scope.AGENT)
    Lowering(before=('buffer_wbl2 sc1',), waits=True, bits=(), after=('buffer_inv sc1',))
    """
    far = scope >= (Scope.WORKGROUP if split else Scope.AGENT)  # beyond the threads that share an L1
    releases, acquires = order in RELEASES and kind != "load", order in ACQUIRES and kind != "store"
    bits: tuple[str, ...] = ()
    if kind != "fence":
        rows = [row for row in REACHES if row.kind == kind and target in row.targets]
        bits = next(row.bits for row in rows if (row.split if split else row.scope) >= scope)
    return Lowering(
        _texts(target, "write back", scope) if releases and far else (),
        (releases or (order == "seq_cst" and kind == "load") or (acquires and kind == "fence")) and far,
        bits,
        _texts(target, "invalidate", scope) if acquires and far else (),
    )


def _texts(target: str, kind: str, scope: Scope) -> tuple[str, ...]:
    """Returns the assembly texts of a kind of cache operations for a scope; one on the L2 alone comes with one on the L1."""
    rows = [row for row in CACHE_OPERATIONS if row.kind == kind and target in row.targets]
    if kind == "write back":  # stores reach the narrower scopes without it
        needed = [row for row in rows if row.scope == scope]
    else:
        needed = [next(row for row in sorted(rows, key=lambda row: row.scope) if row.scope >= scope)]
        needed += [row for row in rows if needed[0].mnemonic == L2_ONLY][:1]
    return tuple(" ".join((row.mnemonic, *row.bits)) for row in needed)
