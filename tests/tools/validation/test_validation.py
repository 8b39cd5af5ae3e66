"""Published measurements as rows, and the model against the ones that need no outside data."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import weakref
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu import hardware
from simgpu.hardware import mfma
from simgpu.hardware.rates.clocks import Busy, clock_falls, sustained_clock
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import predict
from simgpu.tools.benchmarks import clock_fit
from simgpu.tools.cli import main
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import aiter, hipkittens, judge, measured, own_kernels, tensile
from simgpu.tools.validation.aiter import AttentionExtents, NotJudged
from simgpu.tools.validation.judge import RowVerdict, table
from simgpu.tools.validation.rows import Measurement, RowLaunch, read
from simgpu.tools.validation.tile_kernel import TileKernel, model
from tests.support.timed_kernels import LOOP, kernel_on_words

COLUMNS = ("kernel", "source_url", "repo_path", "arch", "board", "shape", "dtype", "metric", "value", "unit", "notes")
LDS = Measurement("LDS ds_read_b128 throughput", "", "gfx950", "MI355X", "4 wave(s), 4-way", "b128", "cycles per ds_read_b128", 64.0, "cycles", "class=compute (LDS)")  # fmt: skip  # noqa: E501
TENSILE = Measurement(
    "Cijk Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SE_1LDSB0_GRVW4_GSU1_TT2_128_WG64_4_1_WGM8", "", "gfx908", "MI100 (120 CU)",
    "M=4096 N=4096 batch=1 K=4096", "SB", "efficiency of peak at the tuned clock", 90.0, "%", "hence cycles~4971026",
)  # fmt: skip


def written(folder: Path, rows: list[Measurement], name: str = "measured.csv.gz") -> Path:
    with gzip.open(folder / name, "wt", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({"source_url": "", **vars(row)} for row in rows)
    return folder


def test_rows_come_back_once_each(tmp_path: Path) -> None:
    other = replace(LDS, shape="1 wave(s), 4-way", value=16.0)
    folder = written(tmp_path, [LDS, other, replace(LDS, value=1.0)])
    assert read(folder, "measured*") == [LDS, other]
    assert LDS.group == "compute" and TENSILE.group == "other"


HEAD = ",".join(COLUMNS).encode()
NO_TABLES = {
    "not packed": (b"not gzip", "gzipped table"),
    "cut short": (gzip.compress(HEAD)[:-6], "gzipped table"),
    "other columns": (gzip.compress(b"kernel,shape\n"), "no column arch, board"),
    "few fields": (gzip.compress(HEAD + b"\n1,2,3\n"), "row 2: fewer fields"),
    "no number": (gzip.compress(HEAD + b"\n" + b"x," * 8 + b"much,us,\n"), "row 2: value 'much' is no number"),
    "nan": (gzip.compress(HEAD + b"\n" + b"x," * 8 + b"nan,us,\n"), "value nan is no measurement"),
    "no text": (gzip.compress(b"\xff\xfe\n"), "gzipped table"),
}


@pytest.mark.parametrize(("held", "why"), NO_TABLES.values(), ids=NO_TABLES)
def test_what_is_no_table_is_refused_by_its_name(held: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "measured.csv.gz").write_bytes(held)
    with pytest.raises(UsageError, match=why) as refused:
        read(tmp_path, "measured*")
    assert str(tmp_path / "measured.csv.gz") in str(refused.value)


def test_a_measurement_of_0_is_not_judged(tmp_path: Path) -> None:
    found = judge.Findings()
    list(judge.judges(judge.MeasurementFolders(written(tmp_path, [replace(LDS, value=0.0)])), ("measured",), None, found))
    assert not found.judged and found.reasons == {("measured", "its measurement is 0"): 1}


def test_memory_of_a_row_is_free_before_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device and its kernels refer to each other."""
    devices: list[weakref.ref[simgpu.Device]] = []

    def judged(_row: Measurement, _checkout: Path | None) -> judge.Judge:
        assert not any(each() for each in devices)
        device = simgpu.Device("gfx908")
        device.keeps_itself = device  # type: ignore[attr-defined]
        devices.append(weakref.ref(device))
        raise NotJudged("as a test")

    monkeypatch.setattr(judge, "_judge_measured", judged)
    folder = written(tmp_path, [replace(LDS, shape=f"{count} wave(s), conflict-free") for count in (1, 2, 4)])
    gc.disable()
    try:
        list(judge.judges(judge.MeasurementFolders(folder), ("measured",), None, judge.Findings()))
    finally:
        gc.enable()
    assert len(devices) == 3


def test_a_tenth_may_calibrate_and_the_choice_is_the_row_s_own() -> None:
    chosen = [replace(LDS, shape=str(number)).fits for number in range(2000)]
    assert 120 < sum(chosen) < 280
    assert replace(LDS, value=3.0).fits == LDS.fits


@pytest.mark.parametrize(
    "shape, clocks", [("1 wave(s), conflict-free", 8), ("4 wave(s), 4-way", 64), ("4 wave(s), unaligned +4", 256)]
)
def test_microbenchmarks_of_lds(shape: str, clocks: int) -> None:
    assert measured.predict_row(replace(LDS, shape=shape)) == pytest.approx(clocks, rel=0.01)


def test_what_nobody_can_run_is_not_judged() -> None:
    with pytest.raises(NotJudged, match="no code object"):
        measured.predict_row(replace(LDS, kernel="HK layernorm"))
    with pytest.raises(NotJudged, match="not known"):
        measured.predict_row(replace(LDS, board="GeForce"))


def test_tensile_names_describe_kernels() -> None:
    chip = tensile.board_of(TENSILE)
    kernel = tensile.kernel_of(TENSILE, chip)
    assert (kernel.m, kernel.n, kernel.k, kernel.waves, kernel.columns) == (128, 128, 16, 4, 8)
    assert kernel.atom.mnemonic == "v_mfma_f32_32x32x2_f32" or kernel.atom.k == 2
    assert tensile.cycles_of(TENSILE, kernel, chip) == 4971026
    assert tensile.shape_of(TENSILE) == (4096, 4096, 1, 4096)


@pytest.mark.parametrize(
    "kernel, notes, why",
    [
        ("Cijk_Ailk_Bljk_ZB_MT128x128x16_MI16x16x4x1_SE", "", "type"),
        ("Cijk_Ailk_Bljk_SB_MT64x32x4_SN_TT4_4_WG16_8_1", "", "matrix"),
        (TENSILE.kernel.split()[-1], "hence cycles~1000", "overhead"),
    ],
)  # fmt: skip
def test_tensile_rows_that_say_nothing_are_not_judged(kernel: str, notes: str, why: str) -> None:
    row = replace(TENSILE, kernel=kernel, notes=notes)
    chip = tensile.board_of(row)
    with pytest.raises(NotJudged, match=why):
        tensile.cycles_of(row, tensile.kernel_of(row, chip), chip)
    with pytest.raises(NotJudged, match="CUs"):
        tensile.board_of(replace(row, board="MI300 series"))


def test_a_long_product_reaches_the_matrix_units_rate() -> None:
    chip = hardware.target("mi100")
    tile = tensile.kernel_of(TENSILE, chip)
    found = model(tile, chip, 4800, 4096, 8192)
    flops = chip.matrix_flops_per_clock("f32") * chip.num_cus
    assert 0.8 < 2 * 4800 * 4096 * 8192 / flops / found.cycles < 1
    assert model(tile, chip, 4800, 4096, 16384).cycles == pytest.approx(2 * found.cycles, rel=0.05)
    slower = model(tile, chip, 4800, 4096, 8192, on=Mechanisms(caches=False))
    assert slower.cycles >= found.cycles


def test_smaller_tiles_ask_more_of_memory() -> None:
    """ROCm/gfx950-gluon-tutorials: tiles bound by bytes in flight, 96 % to 47 % of the matrix units."""
    chip, atom = hardware.target("mi355x"), mfma.find("v_mfma_f32_32x32x16_f16", "gfx950")
    sides = (256, 256), (256, 128), (128, 128), (128, 64)
    tiles = [TileKernel(atom, 2, 2, m, n, 64, m // 2, n // 2, direct=True, stages=2, ahead=2, columns=4) for m, n in sides]
    found = [model(tile, chip, 16 * tile.m, 16 * tile.n, 8192).efficiency for tile in tiles]
    assert found == sorted(found, reverse=True) and found[0] > 1.5 * found[-1]


GLUON = replace(
    LDS, kernel="gluon TCP-bound tile 128x128", shape="tile 128x128x64, K=8192, 256 WGs", dtype="fp16", value=69.0, unit="%",
    metric="in-loop MFMA efficiency",
)  # fmt: skip


@pytest.mark.parametrize("tile, efficiency", [("256x256", 96), ("128x256", 84), ("128x128", 69), ("256x64", 55), ("64x128", 47)])
def test_matrix_efficiency_of_the_tiles_of_the_vector_cache_study(tile: str, efficiency: float) -> None:
    """ROCm/gfx950-gluon-tutorials, docs/tcp_bound_tile_model.md: thread traces of loops."""
    row = replace(GLUON, kernel=f"gluon TCP-bound tile {tile}")
    assert measured.predict_row(row) == pytest.approx(efficiency, rel=0.06)


def test_tiles_of_one_kernel_come_in_the_order_that_was_measured() -> None:
    """Kendall's tau over the study's eight tiles; the goal is 0.8."""
    known = {"256x256": 96, "256x128": 83, "128x256": 84, "128x128": 69, "256x64": 55, "64x256": 57, "128x64": 47, "64x128": 47}
    found = {tile: measured.predict_row(replace(GLUON, kernel=f"gluon TCP-bound tile {tile}")) for tile in known}
    pairs = [(a, b) for a, b in combinations(known, 2) if known[a] != known[b]]
    agree = sum((known[a] > known[b]) == (found[a] > found[b]) for a, b in pairs)
    assert (2 * agree - len(pairs)) / len(pairs) >= 0.8


@pytest.mark.parametrize("groups, bandwidth", [(32, 1529), (128, 4580), (256, 6442)])
def test_a_product_bound_by_memory_draws_what_was_measured(groups: int, bandwidth: float) -> None:
    """ROCm/gfx950-gluon-tutorials, kernels/memory_bound/gemm: few workgroups are bound by a CU's misses, all by memory."""
    row = replace(GLUON, kernel="gluon memory-bound GEMM", shape=f"M=32 K=8192, {groups} workgroups")
    assert measured.predict_row(row) == pytest.approx(bandwidth, rel=0.08)


def test_clocks_of_gfx950_are_the_fit_of_published_runs() -> None:
    chip = hardware.target("mi355x")
    for dtype, mhz in clock_fit.at_full_duty().items():
        assert sustained_clock(chip, Busy.product(1.0), 1.0, dtype).mhz == pytest.approx(mhz, abs=0.6)
    errors = [sustained_clock(chip, Busy.product(run.duty), 1.0, run.dtype).mhz / run.mhz - 1 for run in clock_fit.RUNS]
    assert sum(map(abs, errors)) / len(errors) < 0.04


def test_valu_and_lds_lower_the_clock_of_gfx950_as_in_published_attention() -> None:
    """Runs of only one source give nearly the same figures."""
    chip = hardware.target("mi355x")
    assert clock_falls(chip) == pytest.approx(clock_fit.beyond_products(), abs=0.6)
    errors = [
        sustained_clock(chip, Busy(run.matrix, run.valu, run.lds), 1.0, "bf16").mhz / run.mhz - 1 for run in clock_fit.ATTENTION
    ]
    assert max(map(abs, errors)) < 0.03 and sum(map(abs, errors)) / len(errors) < 0.02
    valu, lds = clock_fit.beyond_products([run for run in clock_fit.ATTENTION if "GLUON" in run.source])
    assert valu == pytest.approx(181, rel=0.25) and lds == pytest.approx(586, rel=0.1)


def test_a_call_that_adds_to_its_output_takes_the_memset_too() -> None:
    call = aiter.ShippedLaunch(Path("k.co"), "k", "mi355x", (1, 1, 1), (), {}, 0)
    assert judge.zeroing(call, 2.4) == 0
    small, large = (judge.zeroing(replace(call, zeroed=nbytes), 2.4) for nbytes in (1 << 20, 1 << 30))
    assert 2.4e-6 < small < large < 3e-4


def test_launches_between_two_events_share_their_overhead() -> None:
    """A host records events around 40 launches: each takes what a profiler sees of it, and the events come once."""
    kernel, buffer = kernel_on_words(LOOP, 256, "gfx942")
    made, row = kernel.time(1, 64, [buffer]), pipelines("gfx942")
    assert 1e6 * (made.between_events - made.seconds) == pytest.approx(row.events_us - row.launch_us)
    verdict = judge.RowVerdict("workloads", "", "mi300a", "f32", "", 1.0, 0)
    launches = ([RowLaunch(times, made.sampled)] for times in (1, 40))
    one, many = (judge._judge_launches(each, verdict, judge._between_events)(judge.Mechanisms()) for each in launches)
    assert one.low < one.predicted < one.high
    assert many.predicted - one.predicted == pytest.approx(39 * 1e6 * predict(made.sampled, warm=True).profiled)


def test_rows_of_aiter_are_a_profilers_times() -> None:
    """AITER's tuner adds a profiler's times of a call's kernels; these leave out a part of each launch."""
    kernel, buffer = kernel_on_words(LOOP, 256, "gfx950")
    made, row = kernel.time(1, 64, [buffer]), pipelines("gfx950")
    assert row.profiled_us < row.launch_us
    assert 1e6 * (made.seconds - made.profiled) == pytest.approx(row.launch_us - row.profiled_us)
    call = aiter.ShippedLaunch(Path("k.co"), "k", "mi355x", (1, 1, 1), (), {}, 0)
    assert judge.profiled_us(call, made) == pytest.approx(1e6 * made.profiled)
    both = judge.profiled_us(replace(call, zeroed=1), made)
    assert both == pytest.approx(1e6 * made.profiled + row.profiled_us, abs=1e-3)


OWN = replace(LDS, arch="gfx90a", board="MI250 1 GCD", shape="4096x4096", dtype="f64", metric="time", unit="ms")


@pytest.mark.parametrize("kernel, ms", [("jacobi Update", 0.51), ("jacobi Norm", 0.1)])
def test_kernels_of_ours_take_what_was_measured_of_theirs(kernel: str, ms: float) -> None:
    """amd/amd-lab-notes: bound by memory."""
    assert measured.predict_row(replace(OWN, kernel=kernel)) == pytest.approx(ms, rel=0.15)


@pytest.mark.slow
def test_each_kernel_of_ours_compiles_and_computes() -> None:
    """A timed kernel does what its comment says, at a size that runs quickly."""
    device = simgpu.Device("mi210")
    module = device.load(own_kernels._code(device.arch, 2))
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 64)), rng.random((64, 64))
    out = device.empty((64, 64), np.float64)
    for name in ("transpose_reading_rows", "transpose_writing_rows", "transpose_by_tiles"):
        module[name].launch((2, 2, 1), (32, 32, 1), [out, device.upload(a), 64, 64])
        assert np.array_equal(out.download(), a.T)
    residual, u = device.empty((64, 64), np.float64), device.upload(a)
    module["update"].launch((16, 1, 1), (256, 1, 1), [u, residual, device.upload(b), device.upload(a), 0.25, 64 * 64])
    assert np.allclose(residual.download(), b - a) and np.allclose(u.download(), a + 0.25 * (b - a))
    sums = device.empty(4, np.float64)
    module["squares"].launch((4, 1, 1), (512, 1, 1), [sums, device.upload(a), 64 * 64])
    assert sums.download().sum() == pytest.approx((a * a).sum())
    y = device.empty(64, np.float64)
    for name, wanted in (("rows_by_vector", a @ b[0]), ("columns_by_vector", a.T @ b[0])):
        module[name].launch((1, 1, 1), (64, 1, 1), [y, device.upload(a), device.upload(b[0]), 64, 64])
        assert np.allclose(y.download(), wanted)
    module["five_points"].launch((16, 1, 1), (256, 1, 1), [out, device.upload(a), 64, 62 + 62 * 64, 2.0, 3.0])
    inner = a[1:-1, 1:-1]
    wanted = 2 * (2 * inner - a[1:-1, :-2] - a[1:-1, 2:]) + 3 * (2 * inner - a[:-2, 1:-1] - a[2:, 1:-1])
    assert np.allclose(out.download()[1:-1, 1:-1], wanted)
    box = rng.random((20, 20, 20)).astype(np.float32)
    lines = device.upload(np.zeros_like(box))
    module["line_points"].launch((1, 16, 16), (64, 1, 1), [lines, device.upload(box), 20, 400, 20, 16, 16, 16])
    weighted = sum(w * box[2:-2, at : at + 16, 2:-2] for at, w in enumerate((1, 2, 3)))
    assert np.allclose(lines.download()[2:-2, 2:-2, 2:-2], weighted)


def test_aiter_s_arguments_lie_where_its_structure_has_them(tmp_path: Path) -> None:
    folder = tmp_path / "hsa/gfx950/bf16gemm"
    folder.mkdir(parents=True)
    (folder / "k.co").write_bytes(b"")
    (folder / "t.csv").write_text("knl_name,co_name,tn,tileM,tileN,splitK\nk1,k.co,1,256,128,0\n")
    path, shape = "hsa/gfx950/bf16gemm/k.co; c.csv", "500x640x128 splitK=1"
    row = replace(LDS, kernel="AITER k1", repo_path=path, board="MI355X (256 CU)", shape=shape)
    call = aiter.call_of(row, tmp_path)
    assert call.grid == (5, 2, 1) and call.board == "mi355x"
    packed = call.pack({"D": 0x1000, "A": 0x2000, "B": 0x3000, "semaphore": 0x4000})
    words = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 16)]
    assert words[:4] == [0x1000, 0, 0x2000, 0x3000] and words[14:18] == [500, 640, 128, 1] and len(words) == 22
    with pytest.raises(NotJudged, match="routing"):
        aiter.call_of(replace(row, repo_path="hsa/gfx950/fmoe/x.co"), tmp_path)
    with pytest.raises(NotJudged, match="checkout"):
        aiter.call_of(replace(row, repo_path="hsa/gfx950/bf16gemm/absent.co"), tmp_path)


def test_aiter_s_attention_s_arguments_lie_where_its_structure_has_them(tmp_path: Path) -> None:
    """fmha_fwd_v3_args of csrc/include/mha_fwd.h: O, Q, K, V, LSE, scale, lengths, strides in bytes, then null pointers."""
    with pytest.raises(NotJudged, match="not in the checkout"):
        aiter.attention(tmp_path, "mi355x", AttentionExtents(4096, 32))
    folder = tmp_path / "hsa/gfx942/fmha_v3_fwd/MI300"
    folder.mkdir(parents=True)
    (folder / "fwd_hd128_bf16_causal_rtna.co").write_bytes(b"")
    call = aiter.attention(tmp_path, "mi300x", AttentionExtents(1000, 4, causal=True))
    assert call.kernel == "_ZN5aiter31fmha_fwd_hd128_bf16_causal_rtnaE" and call.grid == (2, 4, 1) and call.threads == 512
    packed = call.pack({"O": 0x1000, "Q": 0x2000, "K": 0x3000, "V": 0x4000})
    words = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 16)]
    assert words[:5] == [0x1000, 0x2000, 0x3000, 0x4000, 0] and len(words) == 41
    row, head = 256, 256_000
    assert words[6:11] == [1000, row, 256 * row, head, 4 * head]  # of Q, its tile's in the middle
    assert words[11:21] == [1, row, head, 4 * head, 3, 0, 1000, 128, 128, 4]
    assert words[21:27] == [row, head, 4 * head] * 2 and not any(words[27:])
    torch = AttentionExtents(1000, 8, causal=True, kv_heads=2, batch=3, torch_layout=True)
    call = aiter.attention(tmp_path, "mi300x", torch)
    assert call.grid == (2, 8, 3) and call.buffers["Q"] == 3 * 1000 * 8 * 256 == 4 * call.buffers["K"]
    packed = call.pack({"O": 0x1000, "Q": 0x2000, "K": 0x3000, "V": 0x4000, "LSE": 0x5000})
    words = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 16)]
    assert words[4] == 0x5000 and words[16] == 1 and words[29] == 4000
    assert words[7:11] == [2048, 256 * 2048, 256, 2_048_000] and words[11:15] == [4, 512, 256, 512_000]


def test_times_of_attention_are_read_from_hipkittens(tmp_path: Path) -> None:
    folder = tmp_path / hipkittens.FOLDER
    folder.mkdir(parents=True)
    for kind, heads in (("mha", 16), ("gqa", 64)):
        for name, half in (("causal", 2), ("non_causal", 1)):
            tflops = 4 * 15 * 8192**2 * heads * 128 / half / 2e-3 / 1e12
            entry = {"8192": {"N": 8192, "avg_time_ref": 2.0, "tflops_ref": tflops}}
            (folder / f"mi355x_{kind}_{name}_fwd.json").write_text(json.dumps(entry))
    first, *others = hipkittens.rows(tmp_path)
    assert (first.name, first.us, first.group, first.fits) == ("mha 15 x 8192", 2000, "long", True)
    assert [row.shape.batch for row in others] == [15] * 3 and [row.fits for row in others] == [True, False, False]
    (folder / "mi355x_mha_causal_fwd.json").write_text('{"1": {"N": 1}}')
    with pytest.raises(UsageError, match="lacks"):
        list(hipkittens.rows(tmp_path))
    (folder / "mi355x_mha_causal_fwd.json").write_text("[]")
    with pytest.raises(UsageError, match="cannot be read"):
        list(hipkittens.rows(tmp_path))
    found = judge.Findings()
    list(judge.judges(judge.MeasurementFolders(None, None, tmp_path / "none"), (), None, found))
    assert not found.judged


def test_the_table_sums_up_errors() -> None:
    rows = [
        RowVerdict("aiter", "compute", "b", "f8", str(at), 100.0, 100.0 + error, low=88 + error, high=112 + error)
        for at, error in enumerate((10, -20, 30))
    ]
    line = next(line for line in table(rows) if line.group == "compute")
    assert [line.count, line.mape, line.median, line.p90, line.bias] == pytest.approx([3, 20, 20, 30, 20 / 3])
    assert line.within == pytest.approx(100 / 3)
    assert table([replace(rows[0], high=0.0)])[0].within is None


def test_kendall_s_tau_counts_pairs_in_the_measured_order() -> None:
    """Counts two of three pairs in order. Then two of five are, as equal measurements make no pair."""
    rows = [RowVerdict("aiter", "compute", "b", "f8", "", us, got) for us, got in ((1.0, 10.0), (2.0, 30.0), (3.0, 20.0))]
    assert judge.kendall(rows) == pytest.approx(1 / 3)
    assert judge.kendall([*rows, replace(rows[2], predicted=5.0)]) == pytest.approx((2 - 3) / 5)
    assert judge.kendall(rows[:1]) is None and table(rows)[0].tau == pytest.approx(1 / 3)


def test_errors_by_limit_leave_out_rows_that_calibrate_and_those_without_a_limit() -> None:
    row = RowVerdict("aiter", "compute", "mi355x", "f8", "", 100.0, 90.0, limit="vector cache")
    rows = [row, replace(row, predicted=94.0, rows="kittens"), replace(row, fits=True), replace(row, limit="")]
    (line,) = judge.table_by_limit(rows)
    assert (line.group, line.board, line.count) == ("vector cache", "mi355x", 2) and line.mape == pytest.approx(8)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, [LDS, replace(LDS, kernel="HK x")])
    assert main(["validate-time", "--data", str(folder), "--sets", "measured", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lines"][0]["count"] == 1 and found["rows"][0]["predicted"] == pytest.approx(64, rel=0.01)
    assert found["not_judged"][0]["count"] == 1
    assert main(["validate-time", "--data", str(folder), "--sets", "measured", "--ablate"]) == 0
    out = capsys.readouterr().out
    assert "MAPE % with a mechanism off" in out and "no code object" in out
    assert main(["validate-time", "--data", str(folder), "--sets", "measured", "--rows"]) == 0
    assert "predicted   error %   limited by" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, why",
    [(["--sets", "x"], "none"), (["--limit", "0"], "1 or more"), (["--aiter", "/"], "hsa"), ([], "no measurements")],
)
def test_the_command_refuses_in_words(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SIMGPU_TIMING_DATA", raising=False)
    data = ["--data", str(written(tmp_path, [LDS]))] if arguments else []
    assert main(["validate-time", *data, *arguments]) == 2
    assert why in capsys.readouterr().err
