"""Registers and LDS of the paper's two attention kernels, in closed form, and the tiles that fit them.

One wave owns q queries (nq = q/16 atoms) and all k keys of a step. Letters: e bytes of an element, d head dimension. Per lane,
in 32-bit registers:

    Q fragments           q*d*e/256
    S, E                  q*k/64, twice if matrix results and vector operands have separate files
    m, delta, corrections q/4 each
    O                     q*d/64 by matrix instructions (AccVGPRs), q*ceil(d/64) by v_fmac_f32 (a lane's columns, ArchVGPRs)
    fragments of K, V, E  of fixed size

LDS: K or V, k*d*e, and E, k*q*e (4 bytes an element for v_fmac_f32, and q corrections).

The published tiles ignore O's padding and E. If they do not fit, `fit_tile` chooses the largest q that leaves at least 16 keys,
and as many keys as possible, at most the published ones:

k = floor16(min(k published, (arch - fixed(q))*64/q, (acc - O - zero)*64/q, (LDS - corrections)/(d*e + q*eE)))
"""

from __future__ import annotations

from simgpu.hardware.descriptor import WAVEFRONT, HardwareDescriptor
from simgpu.hardware.dtypes import dtype as find_dtype
from simgpu.operators.attention.problem import ATOM, AttentionProblem
from simgpu.operators.attention.registers import ARGUMENT_WORDS, COORDINATES, KEYS, column_blocks
from simgpu.operators.resources import DS_REACH, LdsArray, RegisterRange, ResourcePlan, scalar_ranges

OVERHEAD = 16  # registers besides tiles in the published formulas (E14)
QUAD = 4
GROUPS = 4  # lane groups of a 16-wide instruction
FRAGMENTS = 4  # quads in flight from LDS
# Work-item id, lane's row and group, tile address; E's write address, and its read address or the lane's column.
_ADDRESSES = 6


def weight_bytes(dtype: str, values: str) -> int:
    """Returns the bytes of an element of E in LDS."""
    return find_dtype(dtype).bytes if values == "mfma" else 4


def key_vector(d: int, e: int) -> int:
    """Returns the elements of Q or K in a lane's fragment."""
    return 4 if e == 4 or d % 32 else 8


def chunks(d: int) -> int:
    """Returns the number of a lane's columns of O for v_fmac_f32."""
    return -(-d // WAVEFRONT)


def is_far(keys: int, d: int, e: int) -> bool:
    """True if a tile of K or V is longer than a DS instruction's offset reaches. Its addresses then need a second register."""
    return keys * d * e > DS_REACH


def registers(
    d: int, dtype: str, descriptor: HardwareDescriptor, values: str, queries: int, keys: int
) -> tuple[RegisterRange, ...]:
    """Returns the VGPR ranges of the kernel that computes P V by `values`, "mfma" or "fma". queries, keys: multiples of 16."""
    e, nq = find_dtype(dtype).bytes, queries // ATOM
    blocks, unified, matrix = column_blocks(d, e), descriptor.unified_vgprs, values == "mfma"
    scores, narrow = queries * keys // WAVEFRONT, e < 4
    widths = len({wide for _, wide in blocks}) if matrix else 0
    addresses = _ADDRESSES + widths + (1 + widths) * is_far(keys, d, e)
    ranges = [
        ("addresses", "arch", addresses + addresses % 2),  # even, so that tuples after them start at even registers
        ("Q fragments", "arch", queries * d * e // 256),
        ("S and E" if unified else "E", "arch", scores),
        ("S", "acc", 0 if unified else scores),
        *((name, "arch", nq * QUAD) for name in ("m", "delta", "corrections")),
        ("fragments", "arch", FRAGMENTS * QUAD),
        ("temporaries", "arch", QUAD),
        ("zero", "acc", 0 if unified else QUAD),
    ]
    if matrix:
        ranges += [
            ("O", "acc", queries * d // WAVEFRONT),
            ("E fragments", "arch", 2 * nq * (2 if narrow else 1)),
            ("V fragments", "arch", 2 * blocks[0][1] if narrow else 0),
        ]
    else:
        ranges += [("O", "arch", queries * chunks(d)), ("E, 4 keys", "arch", QUAD if chunks(d) >= FRAGMENTS else 0)]
    return tuple(RegisterRange(*row) for row in ranges if row[2])


def scalars(dtype: str, descriptor: HardwareDescriptor, values: str) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of the wave. Targets without a conversion to bf16 need two constants for rounding."""
    narrow = find_dtype(dtype).bytes < 4 and values == "mfma"
    rounds = narrow and dtype == "bf16" and descriptor.arch != "gfx950"
    return scalar_ranges(
        arguments=ARGUMENT_WORDS, coordinates=COORDINATES, keys=KEYS, buffers=8, temporaries=4,
        byte_selectors=2 if narrow else 0, rounding=2 if rounds else 0,
    )  # fmt: skip


def lds(d: int, dtype: str, values: str, queries: int, keys: int) -> tuple[LdsArray, ...]:
    """Returns the arrays in LDS."""
    tile = LdsArray("K or V tile", keys * d * find_dtype(dtype).bytes)
    e = LdsArray("E", keys * queries * weight_bytes(dtype, values))
    return (tile, e) if values == "mfma" else (tile, e, LdsArray("corrections", queries * 4))


def fit_tile(d: int, dtype: str, descriptor: HardwareDescriptor, values: str, queries: int, keys: int) -> tuple[int, int]:
    """Returns (q, k), the tile of a kernel whose published tile is `queries` by `keys`; (16, 16) even if that does not fit."""
    for q in range(queries, 0, -ATOM):
        k = _keys(d, dtype, descriptor, values, q, keys)
        if k >= ATOM:
            return q, k
    return ATOM, ATOM


def _keys(d: int, dtype: str, descriptor: HardwareDescriptor, values: str, queries: int, most: int) -> int:
    e = find_dtype(dtype).bytes
    ranges = registers(d, dtype, descriptor, values, queries, 0)
    fixed = {file: sum(r.count for r in ranges if r.file == file) for file in ("arch", "acc")}
    arch, acc, total = descriptor.vgpr_budget(1)
    far = 2 + len(column_blocks(d, e)) if descriptor.lds_bytes > DS_REACH else 0
    room = [arch - fixed["arch"] - far]
    if descriptor.unified_vgprs:
        room += [total - fixed["arch"] - far - fixed["acc"], (acc - fixed["acc"]) * most]
    else:
        room.append(acc - fixed["acc"])
    array = descriptor.lds_bytes - sum(array.nbytes for array in lds(d, dtype, values, queries, 0))
    keys = min(most, min(room) * WAVEFRONT // queries, array // (d * e + queries * weight_bytes(dtype, values)))
    return keys // ATOM * ATOM


def published_vgprs(tile_q: int, tile_kv: int, d: int) -> int:
    """Returns the paper's V, registers per lane of a tile (E14), rounded up."""
    return -(-tile_q * (2 * d + tile_kv) // 64) + tile_q // 8 + OVERHEAD


def kernel_resources(p: AttentionProblem, desc: HardwareDescriptor, values: str, queries: int, keys: int) -> ResourcePlan:
    """Returns the resources of a kernel with these tiles."""
    ranges = registers(p.d, p.dtype, desc, values, queries, keys)
    return ResourcePlan.of(desc, 1, ranges, lds(p.d, p.dtype, values, queries, keys), scalars(p.dtype, desc, values))
