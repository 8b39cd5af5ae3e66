"""Matrix instructions of CDNA 1 to 4: one row each, targets as columns. To add one, add its row.

`hardware/targets.py` makes the boards' atoms from this table, `hardware/mfma` adds layouts and arithmetic, `hardware/isa` specs.

Sources: mnemonics and opcodes, LLVM 22 (assembled and disassembled). Shapes and passes, AMD Matrix Instruction Calculator
1.3.2 for gfx908, gfx90a and gfx942. The calculator does not have gfx950; its passes are from LLVM's hazard distances. A pass is
4 clocks of a SIMD's matrix unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.hardware.architectures import BEFORE_GFX942, TARGETS

# (kind, D type, m, n, k, blocks, A, B, opcode, passes on gfx908 gfx90a gfx942 gfx950; 0: absent).
# Formats: fp8 and bf8 are FNUZ on gfx942 and OCP on gfx950. "f8f6f4": the format is selected by modifiers (see FORMATS).
# Its passes are those with at least one 8-bit operand; with two 6- or 4-bit operands, it takes half.
_Row = tuple[str, str, int, int, int, int, str, str, int, tuple[int, int, int, int]]
_ROWS: tuple[_Row, ...] = (
    ("mfma", "f32", 32, 32, 1, 2, "f32", "f32", 64, (16, 16, 16, 16)),
    ("mfma", "f32", 16, 16, 1, 4, "f32", "f32", 65, (8, 8, 8, 8)),
    ("mfma", "f32", 4, 4, 1, 16, "f32", "f32", 66, (2, 2, 2, 2)),
    ("mfma", "f32", 32, 32, 2, 1, "f32", "f32", 68, (16, 16, 16, 16)),
    ("mfma", "f32", 16, 16, 4, 1, "f32", "f32", 69, (8, 8, 8, 8)),
    ("mfma", "f32", 16, 16, 8, 1, "xf32", "xf32", 62, (0, 0, 4, 0)),
    ("mfma", "f32", 32, 32, 4, 1, "xf32", "xf32", 63, (0, 0, 8, 0)),
    ("mfma", "f64", 16, 16, 4, 1, "f64", "f64", 110, (0, 8, 8, 16)),
    ("mfma", "f64", 4, 4, 4, 4, "f64", "f64", 111, (0, 4, 4, 4)),
    ("mfma", "f32", 32, 32, 4, 2, "f16", "f16", 72, (16, 16, 16, 16)),
    ("mfma", "f32", 16, 16, 4, 4, "f16", "f16", 73, (8, 8, 8, 8)),
    ("mfma", "f32", 4, 4, 4, 16, "f16", "f16", 74, (2, 2, 2, 2)),
    ("mfma", "f32", 32, 32, 8, 1, "f16", "f16", 76, (16, 16, 8, 8)),
    ("mfma", "f32", 16, 16, 16, 1, "f16", "f16", 77, (8, 8, 4, 4)),
    ("mfma", "f32", 16, 16, 32, 1, "f16", "f16", 84, (0, 0, 0, 4)),
    ("mfma", "f32", 32, 32, 16, 1, "f16", "f16", 85, (0, 0, 0, 8)),
    ("mfma", "i32", 32, 32, 4, 2, "i8", "i8", 80, (16, 16, 16, 16)),
    ("mfma", "i32", 16, 16, 4, 4, "i8", "i8", 81, (8, 8, 8, 8)),
    ("mfma", "i32", 4, 4, 4, 16, "i8", "i8", 82, (2, 2, 2, 2)),
    ("mfma", "i32", 32, 32, 8, 1, "i8", "i8", 84, (16, 16, 0, 0)),
    ("mfma", "i32", 16, 16, 16, 1, "i8", "i8", 85, (8, 8, 0, 0)),
    ("mfma", "i32", 32, 32, 16, 1, "i8", "i8", 86, (0, 0, 8, 8)),
    ("mfma", "i32", 16, 16, 32, 1, "i8", "i8", 87, (0, 0, 4, 4)),
    ("mfma", "i32", 16, 16, 64, 1, "i8", "i8", 54, (0, 0, 0, 4)),
    ("mfma", "i32", 32, 32, 32, 1, "i8", "i8", 56, (0, 0, 0, 8)),
    ("mfma", "f32", 32, 32, 2, 2, "bf16", "bf16", 104, (16, 16, 0, 0)),
    ("mfma", "f32", 16, 16, 2, 4, "bf16", "bf16", 105, (8, 8, 0, 0)),
    ("mfma", "f32", 4, 4, 2, 16, "bf16", "bf16", 107, (2, 2, 0, 0)),
    ("mfma", "f32", 32, 32, 4, 1, "bf16", "bf16", 108, (16, 16, 0, 0)),
    ("mfma", "f32", 16, 16, 8, 1, "bf16", "bf16", 109, (8, 8, 0, 0)),
    ("mfma", "f32", 32, 32, 4, 2, "bf16", "bf16", 99, (0, 16, 0, 0)),
    ("mfma", "f32", 16, 16, 4, 4, "bf16", "bf16", 100, (0, 8, 0, 0)),
    ("mfma", "f32", 4, 4, 4, 16, "bf16", "bf16", 101, (0, 2, 0, 0)),
    ("mfma", "f32", 32, 32, 8, 1, "bf16", "bf16", 102, (0, 16, 0, 0)),
    ("mfma", "f32", 16, 16, 16, 1, "bf16", "bf16", 103, (0, 8, 0, 0)),
    ("mfma", "f32", 32, 32, 4, 2, "bf16", "bf16", 93, (0, 0, 16, 16)),
    ("mfma", "f32", 16, 16, 4, 4, "bf16", "bf16", 94, (0, 0, 8, 8)),
    ("mfma", "f32", 4, 4, 4, 16, "bf16", "bf16", 95, (0, 0, 2, 2)),
    ("mfma", "f32", 32, 32, 8, 1, "bf16", "bf16", 96, (0, 0, 8, 8)),
    ("mfma", "f32", 16, 16, 16, 1, "bf16", "bf16", 97, (0, 0, 4, 4)),
    ("mfma", "f32", 16, 16, 32, 1, "bf16", "bf16", 53, (0, 0, 0, 4)),
    ("mfma", "f32", 32, 32, 16, 1, "bf16", "bf16", 55, (0, 0, 0, 8)),
    ("mfma", "f32", 16, 16, 32, 1, "bf8", "bf8", 112, (0, 0, 4, 4)),
    ("mfma", "f32", 16, 16, 32, 1, "bf8", "fp8", 113, (0, 0, 4, 4)),
    ("mfma", "f32", 16, 16, 32, 1, "fp8", "bf8", 114, (0, 0, 4, 4)),
    ("mfma", "f32", 16, 16, 32, 1, "fp8", "fp8", 115, (0, 0, 4, 4)),
    ("mfma", "f32", 32, 32, 16, 1, "bf8", "bf8", 116, (0, 0, 8, 8)),
    ("mfma", "f32", 32, 32, 16, 1, "bf8", "fp8", 117, (0, 0, 8, 8)),
    ("mfma", "f32", 32, 32, 16, 1, "fp8", "bf8", 118, (0, 0, 8, 8)),
    ("mfma", "f32", 32, 32, 16, 1, "fp8", "fp8", 119, (0, 0, 8, 8)),
    ("mfma", "f32", 16, 16, 128, 1, "f8f6f4", "f8f6f4", 45, (0, 0, 0, 8)),
    ("mfma", "f32", 32, 32, 64, 1, "f8f6f4", "f8f6f4", 46, (0, 0, 0, 16)),
    ("mfma_scale", "f32", 16, 16, 128, 1, "f8f6f4", "f8f6f4", 45, (0, 0, 0, 8)),
    ("mfma_scale", "f32", 32, 32, 64, 1, "f8f6f4", "f8f6f4", 46, (0, 0, 0, 16)),
    ("smfmac", "f32", 16, 16, 32, 1, "f16", "f16", 98, (0, 0, 4, 4)),
    ("smfmac", "f32", 32, 32, 16, 1, "f16", "f16", 100, (0, 0, 8, 8)),
    ("smfmac", "f32", 16, 16, 32, 1, "bf16", "bf16", 102, (0, 0, 4, 4)),
    ("smfmac", "f32", 32, 32, 16, 1, "bf16", "bf16", 104, (0, 0, 8, 8)),
    ("smfmac", "i32", 16, 16, 64, 1, "i8", "i8", 106, (0, 0, 4, 4)),
    ("smfmac", "i32", 32, 32, 32, 1, "i8", "i8", 108, (0, 0, 8, 8)),
    ("smfmac", "f32", 16, 16, 64, 1, "bf8", "bf8", 120, (0, 0, 4, 4)),
    ("smfmac", "f32", 16, 16, 64, 1, "bf8", "fp8", 121, (0, 0, 4, 4)),
    ("smfmac", "f32", 16, 16, 64, 1, "fp8", "bf8", 122, (0, 0, 4, 4)),
    ("smfmac", "f32", 16, 16, 64, 1, "fp8", "fp8", 123, (0, 0, 4, 4)),
    ("smfmac", "f32", 32, 32, 32, 1, "bf8", "bf8", 124, (0, 0, 8, 8)),
    ("smfmac", "f32", 32, 32, 32, 1, "bf8", "fp8", 125, (0, 0, 8, 8)),
    ("smfmac", "f32", 32, 32, 32, 1, "fp8", "bf8", 126, (0, 0, 8, 8)),
    ("smfmac", "f32", 32, 32, 32, 1, "fp8", "fp8", 127, (0, 0, 8, 8)),
    ("smfmac", "f32", 16, 16, 64, 1, "f16", "f16", 90, (0, 0, 0, 4)),
    ("smfmac", "f32", 32, 32, 32, 1, "f16", "f16", 91, (0, 0, 0, 8)),
    ("smfmac", "f32", 16, 16, 64, 1, "bf16", "bf16", 57, (0, 0, 0, 4)),
    ("smfmac", "f32", 32, 32, 32, 1, "bf16", "bf16", 70, (0, 0, 0, 8)),
    ("smfmac", "i32", 16, 16, 128, 1, "i8", "i8", 58, (0, 0, 0, 4)),
    ("smfmac", "i32", 32, 32, 64, 1, "i8", "i8", 71, (0, 0, 0, 8)),
    ("smfmac", "f32", 16, 16, 128, 1, "bf8", "bf8", 59, (0, 0, 0, 4)),
    ("smfmac", "f32", 16, 16, 128, 1, "bf8", "fp8", 60, (0, 0, 0, 4)),
    ("smfmac", "f32", 16, 16, 128, 1, "fp8", "bf8", 61, (0, 0, 0, 4)),
    ("smfmac", "f32", 16, 16, 128, 1, "fp8", "fp8", 67, (0, 0, 0, 4)),
    ("smfmac", "f32", 32, 32, 64, 1, "bf8", "bf8", 75, (0, 0, 0, 8)),
    ("smfmac", "f32", 32, 32, 64, 1, "bf8", "fp8", 78, (0, 0, 0, 8)),
    ("smfmac", "f32", 32, 32, 64, 1, "fp8", "bf8", 79, (0, 0, 0, 8)),
    ("smfmac", "f32", 32, 32, 64, 1, "fp8", "fp8", 83, (0, 0, 0, 8)),
)  # fmt: skip

# CBSZ (for A) and BLGP (for B) of the f8f6f4 instructions name the format (LLVM, gfx950).
FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")


@dataclass(frozen=True)
class Entry:
    """Table data of one instruction on one target: D (m,n) = A (m,k) B (k,n) + C. `MatrixInstruction` adds behaviour."""

    mnemonic: str  # as LLVM prints it for the target
    target: str
    opcode: int
    m: int
    n: int
    k: int
    blocks: int  # independent products
    a_type: str
    b_type: str
    cd_type: str
    passes: int  # occupancy of the matrix unit, 4 clocks each
    modifiers: frozenset[str]  # those of cbsz (with abid), blgp and neg that have a meaning
    sparse: bool  # smfmac: two of every four k of A are stored
    scaled: bool  # with E8M0 scales
    xdl: bool  # LLVM's class, which decides the wait states; gfx942 and gfx950 run f32 and f64 outside it
    coexec_delay: int | None  # clocks before a VALU instruction may start in its shadow; -1 never, None not established
    aliases: tuple[str, ...]  # other mnemonics that LLVM accepts


def entries(target: str) -> Iterator[Entry]:
    """Yields the table's rows for one of `TARGETS`, in the table's order."""
    column = TARGETS.index(target)
    for row in _ROWS:
        if row[9][column]:
            yield _entry(row, target, row[9][column])


def _entry(row: _Row, target: str, passes: int) -> Entry:
    kind, d, m, n, k, blocks, a, b, opcode, by_target = row
    mnemonic, aliases = _names(row, target)
    sparse = kind == "smfmac"
    xdl = a != "f64" and (a != "f32" or target in BEFORE_GFX942)
    return Entry(
        mnemonic=mnemonic, target=target, opcode=opcode, m=m, n=n, k=k, blocks=blocks,
        a_type=_type(a, target), b_type=_type(b, target), cd_type=d, passes=passes,
        modifiers=_modifiers(a, blocks, sparse, target), sparse=sparse, scaled=kind == "mfma_scale",
        xdl=xdl, coexec_delay=_coexec(target, sparse, xdl, by_target), aliases=aliases,
    )  # fmt: skip


def _names(row: _Row, target: str) -> tuple[str, tuple[str, ...]]:
    """Returns the mnemonic that LLVM prints for the target, and the others that it accepts."""
    kind, d, m, n, k, blocks, a, b, _, by_target = row
    stem = f"v_{kind}_{d}_{m}x{n}x{k}"
    if target in BEFORE_GFX942:
        return stem + a + ("_1k" if a == "bf16" and not by_target[0] else ""), ()
    pair = f"{a}_{b}" if a in ("fp8", "bf8") else a
    name = stem + (f"_{blocks}b" if blocks > 1 else "") + f"_{pair}"
    # The spellings of the older targets remain valid for instructions of gfx942.
    if a in ("fp8", "bf8", "f8f6f4") or not by_target[2]:
        return name, ()
    return name, (stem + a,) + ((stem + a + "_1k",) if a == "bf16" and kind != "smfmac" else ())


def _type(name: str, target: str) -> str:
    return name + "_fnuz" if name in ("fp8", "bf8") and target == "gfx942" else name


def _modifiers(a: str, blocks: int, sparse: bool, target: str) -> frozenset[str]:
    """Returns the modifiers that the calculator lists; on gfx942 and gfx950 f64 has NEG bits in BLGP's field (llvm-mc)."""
    old = target in BEFORE_GFX942
    names = set()
    if (blocks > 1 and a != "f64") or sparse:
        names.add("cbsz")
    if a != "f64" and not sparse and a != "f8f6f4" and (old or a == "f32" or blocks > 1):
        names.add("blgp")
    if a == "f64" and not old:
        names.add("neg")
    return frozenset(names)


def _coexec(target: str, sparse: bool, xdl: bool, by_target: tuple[int, ...]) -> int | None:
    """Returns the clocks before a VALU instruction may co-execute (AMD Matrix Instruction Calculator, "coexecution")."""
    if target == "gfx950" and not by_target[2]:
        return None
    if not xdl:
        return -1
    return 8 if target == "gfx908" or sparse else 4
