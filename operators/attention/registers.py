"""Registers and LDS of the register-chained attention kernel, in closed form; `asm` allocates exactly these ranges.

A wave owns q queries (nq = q/16 atoms) and, of each key step, its own keys (na = keys/16 atoms). Letters: e bytes of an
element, d and dv head dimensions in whole atoms. Per lane, in 32-bit registers:

    Q^T, K, V fragments   q*d*e/256, keys*d*e/256, keys*dv*e/256; V of 2 bytes a second time, with its rows interleaved
    S^T, P^T, O^T         nq*na*4, nq*na*e (replacing S^T if both may be ArchVGPRs and e = 4), q*dv/64
    statistics            3*nq: reference, partial row sum, threshold
    column masks          one fragment of Q or K, if these end within an atom
    slopes                nq, for ALiBi
"""

from __future__ import annotations

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype as find_dtype
from simgpu.operators.attention.problem import ATOM, AttentionProblem
from simgpu.operators.resources import RegisterRange, scalar_ranges

FRAGMENT_BYTES = 16  # one load a lane
LANE_GROUPS = 4  # lanes that load a span of a row of Q or K
WAVES = 4  # one a SIMD, each with its own keys
TEMPORARIES = 8
# Work-item id, lane's row and group, address of the exchange between lane halves; besides offsets in K and V by width.
ADDRESSES = 4
# After the loop: four waves' partial O of a work-item, the sum in flight, addresses; besides factors and addresses by
# width.
END = 22
PAD = 4  # words after each row of a partial O in LDS: rows of 16 lanes start in different banks
ARGUMENT_WORDS = 21  # four pointers; lq, lk, strides of rows and of heads of four arrays, heads, window, scale
POINTER_WORDS = 2
REACH = 1 << 31  # most bytes that a block's 32-bit offsets may span: a head, or the heads of a Q tile
SOFTCAP_WORDS = 2  # arguments besides the scale: the cap in base 2, and minus twice that
COORDINATES = 4  # wave, first query, head, head of K and V
PAGE_WORDS = 6  # begin and end of the next keys, and temporaries of a page
KEYS = 7  # the block's queries, and begin and end of their keys
LOOP_RANGES = ("Q fragments", "K fragments", "K staging", "V rows", "V fragments", "S", "exponents", "P")  # free after the loop
STATISTICS = ("references", "row sums", "thresholds")


def key_atoms(p: AttentionProblem) -> int:
    """Returns the atoms of 16 keys of a wave in a step.

    Two for types of at most 2 bytes with d and dv up to 128, which leaves registers for the interleaved V; else one.
    """
    return 2 if p.element.bytes < 4 and max(p.d, p.dv) <= 128 else 1


def row_registers(d: int, e: int) -> int:
    """Returns the registers of an atom of rows of d elements of e bytes: an even number, because loads of several begin at one.

    >>> row_registers(80, 2), row_registers(80, 1)
    (10, 6)
    """
    registers = d * e // ATOM
    return registers + registers % 2


def key_spans(d: int, e: int) -> tuple[tuple[int, int], ...]:
    """Returns (first column, elements of a lane's load) of each span of a row of Q or K, which LANE_GROUPS lanes load.

    A lane loads 16 bytes, and 8 of the last 16 columns if d is an odd multiple of 16 and e is 2.

    >>> key_spans(80, 2)
    ((0, 8), (32, 8), (64, 4))
    """
    most = FRAGMENT_BYTES // e
    whole = d // (LANE_GROUPS * most) * LANE_GROUPS * most
    spans = tuple((column, most) for column in range(0, whole, LANE_GROUPS * most))
    return spans if whole == d else (*spans, (whole, (d - whole) // LANE_GROUPS))


def column_blocks(d: int, e: int) -> tuple[tuple[int, int], ...]:
    """Returns (first column, atoms) of each block of V's columns that a wave loads with one load: 16 bytes a lane if d allows."""
    blocks, column = [], 0
    while column < d:
        wide = FRAGMENT_BYTES // e
        while wide * ATOM > d - column:
            wide //= 2
        blocks.append((column, wide))
        column += wide * ATOM
    return tuple(blocks)


def registers(p: AttentionProblem, descriptor: HardwareDescriptor, queries: int) -> tuple[RegisterRange, ...]:
    """Returns the named VGPR ranges of a wave. queries: a multiple of 16."""
    d, dv, e, words = p.padded_d, p.padded_dv, p.element.bytes, find_dtype(p.dtype_c).registers
    nq, na = queries // ATOM, key_atoms(p)
    spans, blocks = key_spans(d, e), column_blocks(dv, e)
    fragments = na * ATOM * dv * e // 256
    scores = nq * na * 4 * words
    ranges = [
        ("Q fragments", "arch", queries * d * e // 256),
        ("K fragments", "arch", na * ATOM * d * e // 256),
        ("K staging", "arch", na * row_registers(d, 1) if p.narrow_kv else 0),
        ("V rows", "arch", 4 * na * sum(max(1, wide * p.element_kv.bytes // 4) for _, wide in blocks)),
        ("V fragments", "arch", fragments if e < 4 else 0),
        ("S", "arch" if descriptor.unified_vgprs else "acc", scores),
        ("exponents", "arch", 0 if descriptor.unified_vgprs or e >= 4 else -(-nq // 2) * na * 4),
        ("P", "arch", nq * na * e if e < 4 else 0 if descriptor.unified_vgprs else scores),
        ("O", "acc", queries * dv // 64 * words),
        ("zero", "acc", 0 if descriptor.unified_vgprs else 4),
        *((name, "arch", nq * words) for name in STATISTICS),
        ("column masks", "arch", spans[-1][1] * e // 4 if p.d != d else 0),
        ("slopes", "arch", nq if p.alibi else 0),
        ("addresses", "arch", ADDRESSES + len({vec for _, vec in spans}) + len({wide for _, wide in blocks})),
        ("temporaries", "arch", TEMPORARIES),
    ]
    freed = sum(count for name, file, count in ranges if file == "arch" and name in LOOP_RANGES)
    ranges.append(("end", "arch", max(0, nq + END + 2 * len({wide for _, wide in blocks}) - freed)))
    return tuple(RegisterRange(*row) for row in ranges)


def scalars(p: AttentionProblem, split: bool) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of a wave. split: True if workgroups share a head's keys."""
    na, cached = key_atoms(p), 2 * (p.page > 0) + 2 * p.narrow_kv
    pointers = (split or p.lse) + p.alibi + cached
    return scalar_ranges(
        arguments=ARGUMENT_WORDS + POINTER_WORDS * pointers + SOFTCAP_WORDS * (p.softcap is not None),
        coordinates=COORDINATES + split,
        pages=na + PAGE_WORDS if p.page else 0,
        scale_of_V=1 if p.narrow_kv else 0,
        keys=KEYS,
        buffers=4 * (3 + (split or p.lse)),
        steps_and_bytes=4,
        rows=5 * na - 2,
        masks=1,
        byte_selectors=(2 if p.element.bytes < 4 else 0) + 2 * p.narrow_kv,
        temporaries=5 if split or p.lse else 3,
    )


def partial_columns(dv: int) -> int:
    """Returns the row stride, in elements, of a part's O in scratch memory: dv rounded up to the 4 elements that a lane stores."""
    return -(-dv // 4) * 4


def merge_row_words(d: int, e: int) -> int:
    """Returns the 32-bit words from one row of a partial O in LDS to the next."""
    return ATOM * column_blocks(d, e)[0][1] + PAD


def merge_bytes(d: int, e: int) -> int:
    """Returns the LDS bytes for the waves' partial O, which are added 16 queries by one block of columns at a time."""
    return WAVES * ATOM * merge_row_words(d, e) * 4


def statistics_bytes(queries: int) -> int:
    """Returns the LDS bytes of the waves' references and row sums."""
    return WAVES * 2 * queries * 4


def merge_traffic(d: int, queries: int, size: int) -> int:
    """Returns the LDS bytes that a block's waves write, and read again, to merge their states of `queries` rows.

    A state is O, maximum and sum. size: bytes of an element.
    """
    return WAVES * queries * (d + 2) * size
