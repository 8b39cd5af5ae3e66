"""Instructions as the hazard rules see them: classes, and the registers that they read and write."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from simgpu.hardware.mfma import MatrixInstruction

# ("v", 3), ("a", 0), ("s", 4), ("hwreg", 1); or "vcc", "exec", "m0", "scc", "mode".
Register = tuple[str, int] | str

CLASSES = frozenset({
    "valu",  # any vector ALU instruction except matrix ones; including accvgpr moves
    "trans", "dot", "dpp", "fma_f64", "div_fmas",
    "partial_write",  # SDWA with dst_sel other than DWORD, or op_sel that writes a high half
    "accvgpr_read", "accvgpr_write", "readlane", "writelane",  # readlane: including v_readfirstlane
    "permlane_swap",
    "mfma",  # MFMA and SMFMAC, with "xdl" or "dgemm" by `MatrixInstruction.xdl` and type
    "xdl", "dgemm",
    "salu", "setreg", "getreg", "sendmsg", "movrel", "smem",
    "vmem", "vmem_store", "lds_dma",  # vmem: buffer, global, flat and scratch, including atomics
    "store_gt8",  # stores more than 8 bytes: global, flat, or buffer with a literal soffset
    "store_gt8_soffset",  # a buffer store of more than 8 bytes with an SGPR soffset
    "ds", "ds_write", "ds_addtid", "gds", "lds_direct",
})  # fmt: skip

# Roles in `RegisterUse.reads`: the three sources of a matrix instruction; for others the purpose of the operand.
ROLES = frozenset({
    "srcA", "srcB", "srcC",
    "index",  # of an SMFMAC; also the scales of a scaled MFMA
    "src",  # a plain source of VALU, SALU or SMEM, including carry-in and constants
    "lane_select", "data", "address",
    "soffset",  # also resource and saddr: scalar operands of a memory instruction
})  # fmt: skip


@dataclass(frozen=True)
class RegisterUse:
    """An instruction as the hazard rules see it."""

    mnemonic: str
    classes: frozenset[str] = frozenset()  # of `CLASSES`
    reads: tuple[tuple[str, frozenset[Register]], ...] = ()  # registers by role, of `ROLES`
    writes: frozenset[Register] = frozenset()  # registers written
    passes: int = 0  # passes of a matrix instruction
    states: int = 1  # wait states that it takes itself; s_nop N: N+1

    def read(self, roles: Collection[str] = ()) -> frozenset[Register]:
        """Returns the registers read in any of these roles, or in every role if none is named."""
        if not roles:
            return self._all_read
        return frozenset().union(*(regs for role, regs in self.reads if role in roles))

    @functools.cached_property
    def _all_read(self) -> frozenset[Register]:
        return frozenset().union(*[regs for _, regs in self.reads])


def register_use(
    mnemonic: str,
    classes: Iterable[str] = (),
    reads: Mapping[str, Iterable[Register]] | None = None,
    writes: Iterable[Register] = (),
    passes: int = 0,
    states: int = 1,
) -> RegisterUse:
    """Returns a `RegisterUse` with these fields. ValueError for an unknown class or role."""
    reads = reads or {}
    if not (CLASSES.issuperset(classes) and ROLES.issuperset(reads)):
        unknown = (set(classes) - CLASSES) | (set(reads) - ROLES)
        raise ValueError(f"{mnemonic}: no such class or role: {', '.join(sorted(unknown))}")
    return RegisterUse(
        mnemonic=mnemonic,
        classes=frozenset(classes),
        reads=tuple((role, frozenset(regs)) for role, regs in reads.items()),
        writes=frozenset(writes),
        passes=passes,
        states=states,
    )


def matrix_classes(row: MatrixInstruction) -> frozenset[str]:
    """Returns the classes of a matrix instruction's `RegisterUse`."""
    kind = {"xdl"} if row.xdl else {"dgemm"} if row.cd_type == "f64" else set()
    return frozenset({"mfma"} | kind)
