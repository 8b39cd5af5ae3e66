"""Every number of the paper: as it prints it, as each policy gives it, and the erratum where they differ.

Nothing here was measured on a GPU by us: measured figures are quoted from the paper and marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True)
class Entry:
    """One number."""

    section: str
    what: str
    paper: str  # as the paper prints it
    published: str  # as the policy gives it
    corrected: str
    errata: str = ""  # their ids
    why: str = ""  # they differ, in a clause


def pair(texts: Iterable[str]) -> tuple[str, str]:
    """The published and the corrected cell."""
    published, corrected = texts
    return published, corrected


def _hardware() -> Iterator[Entry]:
    from simgpu.hardware import target

    where = "Hardware model"
    a, b, mi100, mi300x = (target(name) for name in ("gpu_a", "gpu_b", "mi100", "mi300x"))
    peak = mi100.matrix_tflops("f32")
    yield Entry(
        where,
        "f32 vector peak, gpu_a",
        "11.5 TFLOPS",
        f"{a.peak_tflops_f32:g}",
        f"{mi100.peak_tflops_f32:g}",
        "E1",
        "AMD's f64 figure; an FMA counted once",
    )
    yield Entry(where, "f32 matrix peak, gpu_a", "23.1 TFLOPS", "23.1", f"{peak:.1f}", "E1", "256 FLOP/clk/CU x 120 x 1.502 GHz")
    yield Entry(where, "12.3 TFLOPS (measured) of that", "53 %", f"{12.3 / 23.1:.0%}", f"{12.3 / peak:.1%}", "E1")
    yield Entry(
        where,
        "f32 peak, gpu_b",
        "383 TFLOPS",
        f"{b.peak_tflops_f32:g}",
        f"{mi300x.matrix_tflops('f32'):.1f}",
        "E2",
        "383 is MI250X's f16",
    )
    yield Entry(where, "HBM bandwidth, gpu_a", "1.2 TB/s", f"{a.hbm_bandwidth_tb:g}", f"{mi100.hbm_bandwidth_tb:g}", "", "rounded")
    yield Entry(
        where,
        "registers a lane",
        "256",
        f"{a.vgpr_per_thread}",
        f"{mi100.vgpr_per_thread} Arch + {mi100.agpr_per_thread} Acc",
        "E3",
        "MFMA results live in the second file on gfx908",
    )
    atom = mi100.atom("f32")
    held = f"{atom.elements_per_lane}, {atom.elements_per_lane}, {atom.acc_registers}"
    yield Entry(where, "16x16x4: A, B, C elements a lane", "1, 1, 4", held, held)


def _layout() -> Iterator[Entry]:
    from simgpu.hardware import mfma

    where = "MFMA layout"
    row = mfma.find("v_mfma_f32_16x16x4f32", "gfx908")
    holds = all(row.owner("D", 4 * (t // 16) + f, t % 16)[:2] == (f, t) for t in range(64) for f in range(4))
    yield Entry(
        where,
        "acc[f] = C[4*(tid/16) + f][tid % 16]",
        "not as documented",
        "holds" if holds else "fails",
        "holds" if holds else "fails",
        "E12",
        "it is what AMD documents",
    )
    yield Entry(
        where,
        "Q[i,:] = i, K = I under the naive layout",
        "the identity",
        "the identity (as printed)",
        "C[i,j] = j",
        "E13",
        "exchanging rows and columns transposes",
    )


def _derivation() -> Iterator[Entry]:
    from simgpu.operators import TiledComputation

    where = "Tile derivation, 4096^3 GEMM"
    old, new = (
        TiledComputation(4096, 4096, 4096, name, policy).plan for name, policy in (("gpu_a", "published"), ("mi100", "corrected"))
    )
    lds = old.descriptor.lds_bytes

    def tile(*sides: int) -> str:
        return " x ".join(map(str, sides))

    yield Entry(
        where,
        "sqrt((LDS/2)/elem), Eq. tile_cu as printed",
        "128",
        str(isqrt(lds // 2 // 4)),
        f"sqrt(LDS/elem) = {isqrt(lds // 4)}",
        "E4",
        "the printed formula gives 90, and t_K 45",
    )
    yield Entry(where, "CU tile", "128 x 128 x 32", *pair(tile(p.tile_m, p.tile_n, p.tile_k) for p in (old, new)), "E4")
    yield Entry(
        where,
        "LDS of a tile, of 64 KB",
        "filled exactly",
        *pair(f"{p.resources.lds_bytes // 1024} KB, {p.stages} stage(s)" for p in (old, new)),
        "E5",
        "half is used",
    )
    yield Entry(
        where,
        "warp tile",
        "32 x 32 x 8",
        *pair(tile(p.warp_m, p.warp_n, p.warp_k) for p in (old, new)),
        "E7",
        "32 x 32 is not the largest that fits",
    )
    yield Entry(where, "accumulators a lane", "16", *pair(str(p.resources.acc_vgprs) for p in (old, new)), "E6", "m*n/64, not k")
    limits = [next(r for r in p.constraints if r.name == "AccVGPR") for p in (old, new)]
    yield Entry(where, "accumulators allowed", "256", *pair(f"{r.limit:g}" for r in limits), "E8", "waves on a SIMD share the file")
    yield Entry(where, "waves a block", "16", *pair(str(p.waves) for p in (old, new)), "E8")
    yield Entry(where, "blocks a CU", "8.5", *pair(f"{p.blocks_per_cu:.2f}" for p in (old, new)), "E9", "")
    yield Entry(where, "eta, the useful share of rounds", '"good"', *pair(f"{p.eta:.1%}" for p in (old, new)), "E9", "8.53/9")
    yield Entry(
        where,
        "operands at matrix peak, TB/s",
        "not considered",
        *pair(f"{next(r for r in p.constraints if r.name == 'operand bandwidth').use:.2f}" for p in (old, new)),
        "E10",
        "above HBM's 1.23: L2 has to serve it",
    )


def _occupancy() -> Iterator[Entry]:
    from simgpu.hardware import target
    from simgpu.operators import derive_tiles

    where = "derive_tiles(L = 16384, d = 128)"
    for name, printed in (("gpu_a", "0.27"), ("gpu_b", "1.69")):
        plans = [derive_tiles(target(name), L=16384, d=128, policy=policy) for policy in ("published", "corrected")]
        yield Entry(where, f"{name}: tile_Q, tile_KV", "32, 64", *pair(f"{p.tile_Q}, {p.tile_KV}" for p in plans))
        yield Entry(
            where,
            f"{name}: Q tiles a CU",
            printed,
            *pair(f"{p.occupancy:.2f}" for p in plans),
            "E11",
            "integer part lost; nothing to flag" if name == "gpu_a" else "512/304",
        )


def _table_2() -> Iterator[Entry]:
    from simgpu.hardware import target
    from simgpu.operators import derive_tiles

    where = "Table 2: registers between the two products"
    for d, tile_q, printed in (
        (64, 48, "214, fits"),
        (64, 64, "280, does not"),
        (128, 32, "180, fits"),
        (128, 48, "262, does not"),
    ):
        old, new = (
            derive_tiles(target(name), L=16384, d=d, policy=policy)
            for name, policy in (("gpu_a", "published"), ("mi100", "corrected"))
        )
        mine = f"{old.vgprs_at(tile_q)}, {'fits' if tile_q <= old.tile_Q_max else 'does not'}"
        fits = "fits" if tile_q <= new.tile_Q_max else "does not"
        theirs = f"{new.vgprs_at(tile_q)} Arch of {new.descriptor.vgpr_per_thread}, {fits}; tQ up to {new.tile_Q_max}"
        yield Entry(
            where,
            f"d = {d}, tKV = {old.tile_KV}, tQ = {tile_q}",
            printed,
            mine,
            theirs,
            "E14",
            "a formula, not a measurement; one wave a CU",
        )
    plan = derive_tiles(target("gpu_a"), L=16384, d=128, policy="published")
    q, e, kv = 4 * 32 * 128, 4 * 32 * plan.tile_KV, 4 * plan.tile_KV * 128
    yield Entry(
        where, "E^T, tQ = 32, tKV = 64", "24 KB", "24 KB (as printed)", f"{e // 1024} KB", "E15", f"Q + E is {(q + e) // 1024} KB"
    )
    yield Entry(where, "V and E through LDS, a step", "~10 KB", "~10 KB (as printed)", f"{(kv + 2 * e) // 1024} KB", "E16")
    yield Entry(
        where,
        "LDS with Q, E and one of K, V; with both",
        "not checked",
        f"{(q + e + kv) // 1024} KB",
        f"{(q + e + 2 * kv) // 1024} KB: not in 64 KB",
        "E16",
        "corrected keeps Q and P in registers",
    )
    yield Entry(
        where,
        "A fragment of E^T, stored at col*tQ + row",
        "row_in_m*tQ + ks*m + col_group",
        "as printed: wrong values",
        "(ks*k + col_group)*tQ + row_in_m",
        "E17",
        "untransposed, and m where k belongs",
    )
    step = 279.3e-3 / (plan.rounds * 16384 / plan.tile_KV)
    yield Entry(
        where,
        "a step of 279.3 ms (measured)",
        "LDS-bound",
        f"{step * 1e6:.0f} us",
        f"{step * 1502e6 / 1e3:.0f}k cycles; LDS takes ~800",
        "E18",
    )
    yield Entry(
        where, "Q_0", "in registers; A fragments from LDS", "registers (Table 2)", "registers", "E31", "the paper says both"
    )


def _operators() -> Iterator[Entry]:
    from simgpu.operators import Conv2dProblem, SoftmaxProblem, space_to_channel

    where = "Convolution and softmax"
    rgb = Conv2dProblem(1, 3, 224, 224, 64, 3, 3, padding=(1, 1))
    r = f"{rgb.halo_factor(16, 16):.2f}"
    yield Entry(
        where,
        "R of 3x3 on 16x16 tiles",
        '"reuse factor"',
        r,
        r,
        "E27",
        "a re-read factor; stride and dilation 1 only, generalised here",
    )
    two, three = space_to_channel(rgb, 2), space_to_channel(rgb, 3)
    yield Entry(
        where,
        "IC = 3 to 12: taps of 3x3 left",
        "1",
        "1 (as printed)",
        str(two.kh * two.kw),
        "E28",
        f"one tap needs {three.ic} channels or a 2x2 filter",
    )
    soft = SoftmaxProblem(512, 512)
    yield Entry(
        where,
        "softmax FLOP/byte",
        "0.2",
        "0.2 (as printed)",
        f"{soft.intensity(2):.2f} (two reads), {soft.intensity(1):.2f} (one)",
        "E29",
        "5 FLOP an element, exp counted as one",
    )
    yield Entry(
        where,
        "m <- -inf with a fully padded tile",
        "-1e38 in the text, -inf in Algorithm 1",
        "NaN",
        "finite floor and mask: counts 0",
        "E30",
    )
    yield Entry(where, "3x3 kernel over naive (measured)", "1.7x", "", "", "", "quoted only")


def _traffic() -> Iterator[Entry]:
    from simgpu.hardware import target
    from simgpu.operators import AttentionProblem, UnfusedAttention, plan_attention

    where = "HBM traffic of one head, d = 128"
    short, long = AttentionProblem(16384, 16384, 128), AttentionProblem(32768, 32768, 128)
    a = target("gpu_a")
    unfused, longer = UnfusedAttention(short, a), UnfusedAttention(long, a)
    plan = plan_attention(short, a, "published")

    def same(what: str, paper: str, value: str, errata: str = "E19", why: str = "reproduces") -> Entry:
        return Entry(where, what, paper, value, value, errata, why)

    yield same("fused, L = 16384", "34 MB", f"{short.bytes_once / 1e6:.1f} MB")
    yield same("S", "1,074 MB", f"{unfused.score_bytes / 1e6:,.1f} MB")
    yield same("unfused", "4,329 MB", f"{unfused.bytes_once / 1e6:,.1f} MB")
    ratio = unfused.bytes_once / short.bytes_once
    yield same("unfused / fused", "129x", f"{ratio:.1f}x")
    yield same("unfused, L = 32768", "17 GB", f"{longer.bytes_once / 1e9:.2f} GB")
    yield Entry(
        where,
        "savings formula at L = 16384",
        "L/(4d) = 32",
        f"{16384 / (4 * 128):g}",
        f"1 + L/d = {1 + 16384 / 128:g}",
        "E20",
        "S is passed four times",
    )
    saving = unfused.bytes_once / plan.lockstep_bytes
    yield Entry(
        where,
        "K and V read again each round",
        "34 MB, whatever the tiles",
        f"{short.bytes_once / 1e6:.0f} MB",
        f"{plan.lockstep_bytes / 1e6:.0f} MB, {saving:.0f}x saved",
        "E21",
        "K + V do not fit in 8 MB of L2",
    )
    mi100 = target("mi100")
    compute, memory = short.flops / mi100.matrix_tflops("f32") / 1e9, unfused.bytes_once / mi100.hbm_bandwidth_tb / 1e9
    yield Entry(
        where,
        "speed-up at the roofline",
        "~33x",
        "33 (as printed)",
        f"{memory / compute:.1f}x (overlapped) to {(memory + compute) / compute:.1f}x (serial)",
        "E22",
        "33x is traffic, not time",
    )
    yield Entry(
        where,
        "S of one head at L = 32768",
        "would not fit in HBM",
        "as printed",
        f"{longer.score_bytes / 1e9:.2f} GB: fits {int(mi100.hbm_bytes // longer.score_bytes)} times",
        "E26",
    )


def _table_3() -> Iterator[Entry]:
    from simgpu.hardware import target
    from simgpu.operators import AttentionProblem, plan_attention

    where = "Table 3: fused over unfused (times measured by the paper)"
    rows = (
        (4096, 27.9, 26.6, "0.95x"),
        (8192, 83.5, 104.6, "1.25x"),
        (16384, 279.3, 418.1, "1.50x"),
        (32768, 991.1, 1666.6, "1.68x"),
    )
    for length, fused, unfused, printed in rows:
        problem = AttentionProblem(length, length, 128)
        plan = plan_attention(problem, target("gpu_a"), "published")
        fit = 3.40e-3 * length * plan.rounds
        tflops = problem.flops / fused / 1e9
        yield Entry(
            where,
            f"L = {length}: {fused:g} and {unfused:g} ms",
            printed,
            f"{unfused / fused:.2f}x",
            f"fit 3.40 us * L * {plan.rounds} rounds = {fit:.1f} ms; {tflops:.2f} TFLOPS",
            "E23, E24",
            "divides correctly; 1 % of matrix peak",
        )
    plan = plan_attention(AttentionProblem(4096, 4096, 128), target("gpu_a"), "published")
    new = plan_attention(AttentionProblem(4096, 4096, 128), target("mi100"))
    yield Entry(
        where,
        "crossover at L = 4096",
        "LDS overhead",
        f"{plan.q_tiles} tiles, 2 rounds, eta {plan.eta:.0%}",
        f"keys split {new.split_kv}: eta {new.eta:.0%}",
        "E25",
        "a tail of 8 tiles",
    )
    yield Entry(
        where, "speed-up over L", "grows linearly", "0.95 to 1.68 over 8x in L", "tends to 1.75", "E24", "the tail fills up"
    )


SECTIONS: tuple[Callable[[], Iterator[Entry]], ...] = (
    _hardware, _layout, _derivation, _occupancy, _table_2, _operators, _traffic, _table_3,
)


def entries() -> list[Entry]:
    """All rows, in the paper's order."""
    return [entry for rows in SECTIONS for entry in rows()]
