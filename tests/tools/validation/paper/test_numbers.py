"""`simgpu paper`: its output number by number, and that no cell is a constant unless it is marked as quoted."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest

from simgpu import hardware
from simgpu.hardware import mfma
from simgpu.hardware.descriptor import MFMAAtom
from simgpu.operators import (
    AttentionTiles,
    GemmPlan,
    GemmProblem,
    ResourcePlan,
    Softmax,
    SoftmaxProblem,
    SoftmaxState,
    UnfusedAttention,
    derive_tiles,
    plan_gemm,
    reference,
)
from simgpu.operators.gemm.limits import Tiling, gemm_resources
from simgpu.operators.resources import LdsArray
from simgpu.tools.cli import main
from simgpu.tools.validation.paper import families, machine
from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure
from simgpu.tools.validation.paper.families import FAMILIES
from simgpu.tools.validation.paper.gemm import VGPR_OVERHEAD, derivation, largest_warp_tile
from simgpu.tools.validation.paper.givens import Givens
from simgpu.tools.validation.paper.machine import lane_rate, naively_read
from simgpu.tools.validation.paper.numbers import SECTIONS, entries
from simgpu.tools.validation.paper.operators import padded_rows, softmax_verdict
from simgpu.tools.validation.paper.registers import read_right
from simgpu.tools.validation.paper.times import Fit, fits, limit
from simgpu.tools.validation.paper.traffic import split_traffic
from simgpu.tools.verbs.paper import document
from tests.support.places import ROOT

GPU_A = hardware.target("gpu_a")
CELLS = ("published", "corrected")


@cache
def printed() -> list[PaperNumber]:
    """All entries for the paper's own givens."""
    return entries()


def row(what: str, rows: Sequence[PaperNumber] = ()) -> PaperNumber:
    """Returns the entry of `rows`, or of `simgpu paper`, with this description, or else one that begins so."""
    rows = rows or printed()
    (found,) = [entry for entry in rows if entry.what == what] or [entry for entry in rows if entry.what.startswith(what)]
    return found


# description, published, corrected, erratum: required output of `simgpu paper`, number by number.
SAID = [
    ("f32 vector peak, gpu_a", "11.5", "23.1", "E1"),
    ("f32 matrix peak, gpu_a", "23.1", "46.1", "E1"),
    ("12.3 TFLOPS", "53%", "26.7%", "E1"),
    ("f32 peak, gpu_b", "383 (quoted)", "163.4", "E2"),
    ("clock, L2", "1502 MHz, 1 x 8 MB, 256", "2100 MHz, 8 x 4 MB, 256", ""),
    ("figures that no tile", "hbm_bandwidth_tb, peak_tflops_f32", "peak_tflops_f32", ""),
    ("registers a lane", "256 (quoted)", "256 Arch + 256 Acc", "E3"),
    ("sqrt((LDS/2)/elem)", "90; 45", "sqrt(LDS/elem) = 128; 32", "E4"),
    ("LDS of a tile", "32 KB, 1 stage(s)", "56 KB, 2 stage(s)", "E5"),
    ("accumulators a lane", "16", "192", "E6"),
    ("warp tile", "32 x 32 x 8", "128 x 96 x 16", "E7"),
    ("warp tiles of a block", "4 x 4 = 16", "2 x 2 = 4", ""),
    ("accumulators allowed", "64", "256", "E8"),
    ("eta", "94.8%", "97.8%", "E9"),
    ("operands at matrix peak", "1.44", "0.84", "E10"),
    ("gpu_a: Q tiles a CU", "4.27", "4.27", "E11"),
    ("gpu_b: Q tiles a CU", "1.68", "0.84", "E11"),
    ("acc[f] = ", "holds", "holds", "E12"),
    ("Q[i,:] = i", "the identity (quoted)", "C[i,j] = j", "E13"),
    ("E^T, tQ", "24 KB (quoted)", "8 KB", "E15"),
    ("V and E through", "~10 KB (quoted)", "48 KB", "E16"),
    ("LDS with Q, E", "56 KB", "88 KB: not in 64 KB", "E16"),
    ("A fragments of E^T", "0%", "100%", "E17"),
    ("a step of 279.3", "218 us", "328k cycles; LDS takes 1,152", "E18"),
    ("fused, L = 16384", "33.6 MB", "33.6 MB", "E19"),
    ("S", "1,073.7 MB", "1,073.7 MB", "E19"),
    ("unfused", "4,328.5 MB", "4,328.5 MB", "E19"),
    ("unfused / fused", "129.0x", "129.0x", "E19"),
    ("unfused, L = 32768", "17.25 GB", "17.25 GB", "E19"),
    ("savings formula", "32", "1 + L/d = 129", "E20"),
    ("fused at L = 4096", "8.4 MB; 8x", "29.7 MB; 9.3x", "E20, E25"),
    ("fused at L = 8192", "16.8 MB; 16x", "50.9 MB; 21.4x", "E20, E25"),
    ("K and V read again", "34 MB", "101 MB, 43x saved", "E21"),
    ("speed-up at the roofline", "1 + L/(4d) = 33", "1.2x (overlapped) to 2.2x (serial)", "E22"),
    ("L = 4096: 27.9", "0.95x", "fit 3.39 us * L * 2 rounds = 27.8 ms; 0.31 TFLOPS", "E23, E24"),
    ("L = 8192: 83.5", "1.25x", "fit 3.39 us * L * 3 rounds = 83.4 ms; 0.41 TFLOPS", "E23, E24"),
    ("L = 16384: 279.3", "1.50x", "fit 3.39 us * L * 5 rounds = 278.0 ms; 0.49 TFLOPS", "E23, E24"),
    ("L = 32768: 991.1", "1.68x", "fit 3.39 us * L * 9 rounds = 1000.7 ms; 0.55 TFLOPS", "E23, E24"),
    ("crossover", "128 tiles, 2 rounds, eta 53%", "keys split 5: eta 89%", "E25"),
    ("speed-up over L", "0.95 to 1.68 over 8x in L", "tends to 1.77", "E24"),
    ("S of one head", "would not fit (quoted)", "4.29 GB: fits 7 times", "E26"),
    ("R of 3x3", "1.27", "1.27", "E27"),
    ("IC = 3 to 12", "1 (quoted)", "4", "E28"),
    ("softmax FLOP/byte", "0.2 (quoted)", "0.42 (two reads), 0.62 (one)", "E29"),
    ("m <- -inf", "delta = nan", "delta = 0", "E30"),
    ("softmax 512 x 512", "512 x 512: at machine precision", "512 x 512: at machine precision", ""),
]


@pytest.mark.parametrize(("what", "published", "corrected", "errata"), SAID)
def test_the_command_says(what: str, published: str, corrected: str, errata: str) -> None:
    found = row(what)
    assert (str(found.published), str(found.corrected), found.errata) == (published, corrected, errata)


def test_every_erratum_is_cited() -> None:
    cited = {number for entry in printed() for number in entry.errata.split(", ") if number}
    assert cited == {f"E{n}" for n in range(1, 32)}


def test_the_document_is_what_the_command_prints() -> None:
    text = (ROOT / "docs" / "reference" / "paper.md").read_text()
    assert text == document(), "run: simgpu paper -o docs/reference/paper.md --force"


# -- nothing is a constant that looks derived --------------------------------------------------------

OTHER_ATOM = (MFMAAtom(m=16, n=16, k=8, dtype_in="f32", dtype_acc="f32"),)


def other_givens() -> Iterator[Givens]:
    """Yields the paper's givens, one of them changed."""
    g = Givens()
    yield replace(g, instruction="v_mfma_f32_32x32x2f32")
    for name in ("side", "small_side", "small_length", "length", "longer", "d", "softmax"):
        yield replace(g, **{name: getattr(g, name) // 2})
    yield replace(g, gemm_tflops=10.0)
    yield replace(g, filter_side=5)
    yield replace(g, pixels=(8, 8))
    yield replace(g, replication=3)
    yield replace(g, floor=0.0)
    yield replace(g, table_2=tuple(replace(row, tile_q=row.tile_q + 32) for row in g.table_2))
    yield replace(g, table_3=tuple(replace(row, fused=row.fused * 1.1, unfused=row.unfused * 1.3) for row in g.table_3))
    yield replace(g, table_3=tuple(replace(row, unfused=row.unfused * (2 if row is g.table_3[0] else 1)) for row in g.table_3))
    yield replace(g, table_3=tuple(replace(row, length=row.length // 2) for row in g.table_3))
    for name in ("mi100", "gpu_a", "gpu_b", "mi300x", "mi250x"):
        d = getattr(g, name)
        changes = {
            "lds_bytes": 2 * d.lds_bytes, "vgpr_per_thread": d.vgpr_per_thread // 2, "agpr_per_thread": d.agpr_per_thread // 2,
            "num_cus": 2 * d.num_cus, "clock_mhz": 2 * d.clock_mhz, "hbm_bandwidth_tb": 50 * d.hbm_bandwidth_tb,
            "l2_bytes": 2 * d.l2_bytes, "hbm_bytes": 2 * d.hbm_bytes, "max_workgroup_size": 256,
        }  # fmt: skip
        yield from (replace(g, **{name: replace(d, **{figure: value})}) for figure, value in changes.items())
        yield replace(g, **{name: replace(d, num_cus=d.num_cus // 3)})
        yield replace(g, **{name: replace(d, lds_bytes=70000)})  # no whole atoms fill it
        if name != "mi250x":
            yield replace(g, **{name: replace(d, atoms=OTHER_ATOM)})


@contextmanager
def broken_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs a state that counts padding, a plan that keeps Q in LDS, fewer families; other waves, another S, another count
    of FLOP."""

    def one(cls: type[SoftmaxState], shape: tuple[int, ...], kind: np.dtype) -> SoftmaxState:
        return cls(np.zeros(shape, kind), np.ones(shape, kind))

    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxState, "empty", classmethod(one))
        patch.setattr(AttentionTiles, "resources", property(lambda plan: ResourcePlan((), (LdsArray("Q", 8),), (), 1, 1)))
        patch.setattr(families, "FAMILIES", FAMILIES[:5])
        patch.setattr(GemmPlan, "waves_m", 3)
        patch.setattr(UnfusedAttention, "score_bytes", 8)
        patch.setattr(SoftmaxProblem, "intensity", lambda problem, reads: reads)
        patch.setattr(SoftmaxProblem, "flops", 8)
        yield


def sections(rows: Iterable[PaperNumber]) -> dict[tuple[str, int], PaperNumber]:
    """Returns entries by a key that survives other sizes: the section's first word and the index in it."""
    counts: dict[str, int] = {}
    found = {}
    for entry in rows:
        name = entry.section.split()[0]
        counts[name] = counts.get(name, -1) + 1
        found[name, counts[name]] = entry
    return found


# The index that the paper should have printed reads every fragment for all sizes: test_e17.
SETTLED = {("A fragments of E^T, stored at col*tQ + row, that are read right", cell) for cell in CELLS}


def waiting_cells(rows: dict[tuple[str, int], PaperNumber]) -> dict[tuple[tuple[str, int], str], str]:
    """Returns the cells that something must change, by place and column: those not quoted, and numbers in the last column."""
    names = r"E\d+|MI\d+X?|gfx\d+|f\d\d|float64|L2|Algorithm 1"  # they have digits
    cells = {(place, cell): getattr(entry, cell) for place, entry in rows.items() for cell in CELLS}
    waiting = {where: value for where, value in cells.items() if isinstance(value, str) and value}
    whys = {(place, "why"): entry.why for place, entry in rows.items()}
    return waiting | {where: why for where, why in whys.items() if re.search(r"\d", re.sub(names, "", why))}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_cell_that_is_not_quoted_depends_on_a_given_or_on_the_code(
    section: Callable[[Givens], Iterable[PaperNumber]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "idle_figures", cache(machine.idle_figures))  # slow; most givens leave its board as it is
    ours = sections(section(Givens()))
    waiting = waiting_cells(ours)
    with broken_code(monkeypatch):
        waiting = unchanged(waiting, section(Givens()))
    for given in other_givens():
        if all((ours[place].what, cell) in SETTLED for place, cell in waiting):
            return
        waiting = unchanged(waiting, section(given))
    stuck = {(ours[place].what, cell) for place, cell in waiting}
    assert stuck <= SETTLED, "a constant: compute it, or give it as QuotedFigure"


def unchanged(
    waiting: dict[tuple[tuple[str, int], str], str], rows: Iterable[PaperNumber]
) -> dict[tuple[tuple[str, int], str], str]:
    """Returns the cells that have the same value in other rows, or are not there."""
    other = sections(rows)
    return {
        (place, cell): value
        for (place, cell), value in waiting.items()
        if place not in other or getattr(other[place], cell) == value
    }


def test_no_cell_is_a_literal_in_the_source() -> None:
    seen = 0
    for path in sorted((ROOT / "tools" / "validation" / "paper").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "PaperNumber":
                assert not call.keywords, "positional, so that this test sees the cells"
                for cell in call.args[3 : 4 if isinstance(call.args[3], ast.Starred) else 5]:
                    seen += 1
                    literal = isinstance(cell, ast.Constant) and cell.value != ""
                    computed = not isinstance(cell, ast.JoinedStr) or any(isinstance(x, ast.FormattedValue) for x in cell.values)
                    assert computed and not literal, f"{path.name}:{cell.lineno}"
    assert seen > 60


@pytest.mark.slow
def test_quoted_cells_are_marked_where_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = [entry for entry in printed() if isinstance(entry.published, QuotedFigure)]
    assert len(quoted) > 5 and not any(isinstance(entry.corrected, QuotedFigure) for entry in printed())
    text = document()
    for entry in quoted:
        assert f"| {entry.what} | {entry.paper} | {entry.published.text} (quoted) |" in text  # type: ignore[union-attr]
    assert text.count("(quoted)") == len(quoted) + 1, "and in the introduction"
    assert main(["paper", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["quoted"] for row in said["entries"]] == [
        ["paper", "published"] if isinstance(entry.published, QuotedFigure) else ["paper"] for entry in printed()
    ]
    assert len(said["families"]) == len(FAMILIES)


def test_the_givens_are_all_used() -> None:
    source = "".join(path.read_text() for path in (ROOT / "tools" / "validation" / "paper").glob("*.py"))
    assert [field.name for field in fields(Givens) if f"g.{field.name}" not in source] == []


# -- validated kernels -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_named_tests_exist() -> None:
    for family in FAMILIES:
        assert bool(family.tests) != bool(family.without), family.what
        for name in family.tests:
            file, function = name.split("::")
            defined = {node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}
            assert function in defined, name
    assert len({(family.operator, family.what) for family in FAMILIES}) == len(FAMILIES)


# -- errata, against the code that the entries come from ----------------------------------------------


def test_e1_the_papers_peaks_are_lanes_and_not_flops() -> None:
    """11.5 and 23.1 follow from 64 lanes a CU and an FMA as one FLOP; AMD's 23.1 and 46.1 count it as two."""
    assert lane_rate(GPU_A) == pytest.approx(GPU_A.peak_tflops_f32, abs=0.05)
    mi100 = hardware.target("mi100")
    assert 2 * lane_rate(mi100) == pytest.approx(mi100.peak_tflops_f32, abs=0.05)
    assert 4 * lane_rate(mi100) == pytest.approx(mi100.matrix_tflops("f32"))


@pytest.mark.parametrize("kib", [32, 64, 128, 160])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_e4_the_tile_is_not_what_the_printed_formula_gives(kib: int, dtype: str) -> None:
    gpu = replace(hardware.target("mi100"), lds_bytes=kib << 10)
    plan = plan_gemm(GemmProblem(4096, 4096, 64, dtype), gpu, "published")
    element, unit = plan.problem.element.bytes, plan.waves_m * plan.atom.m
    assert plan.tile_m == max(t for t in range(unit, 1024, unit) if t * t * element <= gpu.lds_bytes)
    if dtype == "f32":
        printed = max(t for t in range(1, 1024) if 4 * t * t <= gpu.lds_bytes // 2)
        depth = max(t for t in range(1, 1024) if 2 * printed * t * 4 <= gpu.lds_bytes // 2)
        said = row("sqrt((LDS/2)/elem)", list(derivation(replace(Givens(), gpu_a=gpu)))).published
        assert said == f"{printed}; {depth}"
        assert kib != 64 or (printed, plan.tile_m) == (90, 128)
    else:
        assert kib != 64 or plan.tile_m == 128, "of two bytes, what the paper prints for four"


@pytest.mark.parametrize(("vgprs", "largest"), [(256, 112), (128, 80), (512, 176)])
def test_e7_the_largest_warp_tile(vgprs: int, largest: int) -> None:
    """Oracle: the planner's registers for one wave of every size."""
    gpu = replace(GPU_A, vgpr_per_thread=vgprs)
    problem, atom = GemmProblem(4096, 4096, 4096), gpu.atom("f32")
    fit = [
        side
        for side in range(16, 512, 16)
        if gemm_resources(problem, gpu, atom, Tiling(side, side, 8, 8, 1, 1, 1, 1)).acc_vgprs + VGPR_OVERHEAD <= vgprs
    ]
    assert max(fit) == largest_warp_tile(gpu) == largest
    assert f"the largest that fits is {largest} x {largest}" in row("warp tile", list(derivation(replace(Givens(), gpu_a=gpu)))).why


def test_e13_the_naive_reading_transposes() -> None:
    """Lanes are the instruction's, then the paper's naive assumption, then a wrong one."""
    real = mfma.find("v_mfma_f32_16x16x4f32", "gfx908")
    owned = {(i, j): real.owner("D", i, j)[:2] for i in range(16) for j in range(16)}
    naive = {(t % 16, 4 * (t // 16) + f): (f, t) for t in range(64) for f in range(4)}
    assert naively_read(owned) == "C[i,j] = j" and naively_read(naive) == "C[i,j] = i"
    swapped = {place: (3 - register, lane) for place, (register, lane) in owned.items()}
    assert naively_read(swapped) == "neither row, column nor the identity"
    assert naively_read({(lane % 16, 0): (j % 4, lane) for j, lane in enumerate(range(64))}) != "C[i,j] = i"


def test_e17_only_the_corrected_index_reads_a_fragments_of_e() -> None:
    """By the map of A, lane (g, i) of K step ks supplies E[i, ks*k + g], which is at (ks*k + g)*tQ + i."""
    plan = derive_tiles(GPU_A, L=16384, d=128, policy="published")
    atom, t_q = plan.descriptor.atom("f32"), plan.tile_Q
    instruction = mfma.find(atom.mnemonic, "gfx908")
    for lane in range(64):
        i, k, _ = instruction.element("A", 0, lane)
        assert (k * t_q + i) == (lane // 16) * t_q + lane % 16
    assert read_right(plan, lambda ks, g, i: (ks * atom.k + g) * t_q + i) == 1
    for wrong in (
        lambda ks, g, i: i * t_q + ks * atom.m + g,  # as printed
        lambda ks, g, i: (ks * atom.m + g) * t_q + i,
        lambda ks, g, i: i * plan.tile_KV + ks * atom.k + g,
        lambda ks, g, i: (ks * atom.k + g) * t_q + i + 1,
    ):
        assert read_right(plan, wrong) < 0.3


def test_e20_split_keys_move_partial_results() -> None:
    """Oracles: the counters of the tree's visitor, and docs/explanation/attention.md."""
    text = " ".join((ROOT / "docs" / "explanation" / "attention.md").read_text().split())
    for length in (4096, 8192):
        moved, saved, split = split_traffic(Givens(), length)
        plan = derive_tiles(hardware.target("mi100"), L=length, d=128)
        assert split == plan.split_kv > 1
        assert moved == 4 * 4 * length * 128 + split * 2 * 4 * length * (128 + 2)
        assert saved == pytest.approx((4 * 4 * length**2 + 4 * 4 * length * 128) / moved)
        said = f"{moved / 1e6:.1f} MB at L = {length} ({split} blocks"
        assert said in text and f"{saved:.1f}x" in text, said


def test_e24_the_fit_is_the_least_squares_of_the_papers_times() -> None:
    given = Givens()
    fused, unfused = fits(given)
    points = [(time.length * derive_tiles(GPU_A, time.length, 128, "published").rounds, time.fused) for time in given.table_3]

    def squares(factor: float) -> float:
        return sum((factor * x / t - 1) ** 2 for x, t in points)

    assert squares(fused.factor) < min(squares(fused.factor * (1 + step)) for step in (-1e-3, 1e-3))
    assert fused.factor == pytest.approx(3.40e-3, rel=5e-3) and fused.worst < 0.012
    assert limit(given) == pytest.approx(1.75, rel=0.015)  # E24 has it from the last length only
    assert Fit.of([(2.0, 6.0), (5.0, 15.0)]) == Fit(pytest.approx(3), pytest.approx(0, abs=1e-12))
    without_rounds = Fit.of((time.length**2, time.fused) for time in given.table_3)
    assert without_rounds.worst > 0.2 > unfused.worst
    alone = replace(given, gpu_a=replace(GPU_A, num_cus=60))
    assert fits(alone)[0].worst > 0.05, "the law holds for the 120 CUs that were measured"


def test_the_softmax_verdict_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Softmax(SoftmaxProblem(64, 300), GPU_A, "published")
    assert softmax_verdict(tree) == "64 x 300: at machine precision"
    monkeypatch.setattr("simgpu.operators.reference.softmax", lambda p, x: exact(p, x) * (1 + 2.0**-20))
    assert softmax_verdict(tree).endswith("past machine precision")


exact = reference.softmax


def test_e30_algorithm_1_gives_nan_and_the_state_does_not() -> None:
    assert padded_rows(float("-inf")) == ("delta = nan", "delta = 0")
    assert padded_rows(-1e38)[0] == "delta = 8", "a finite floor without a mask counts its padding"
