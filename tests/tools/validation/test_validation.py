"""Published measurements as rows, and the model against those that need nothing from outside."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from simgpu import hardware
from simgpu.hardware import mfma
from simgpu.timing.predict import Mechanisms
from simgpu.tools.cli import main
from simgpu.tools.validation import aiter, measured, tensile
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.judge import Judged, table
from simgpu.tools.validation.rows import Row, read
from simgpu.tools.validation.tile_kernel import TileKernel, model

COLUMNS = ("kernel", "source_url", "repo_path", "arch", "board", "shape", "dtype", "metric", "value", "unit", "notes")
LDS = Row("LDS ds_read_b128 throughput", "", "gfx950", "MI355X", "4 wave(s), 4-way", "b128", "cycles per ds_read_b128", 64.0, "cycles", "class=compute (LDS)")  # fmt: skip  # noqa: E501
TENSILE = Row(
    "Cijk Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SE_1LDSB0_GRVW4_GSU1_TT2_128_WG64_4_1_WGM8", "", "gfx908", "MI100 (120 CU)",
    "M=4096 N=4096 batch=1 K=4096", "SB", "efficiency of peak at the tuned clock", 90.0, "%", "hence cycles~4971026",
)  # fmt: skip


def written(folder: Path, rows: list[Row], name: str = "measured.csv.gz") -> Path:
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


def test_a_tenth_may_calibrate_and_the_choice_is_the_row_s_own() -> None:
    chosen = [replace(LDS, shape=str(number)).fits for number in range(2000)]
    assert 120 < sum(chosen) < 280
    assert replace(LDS, value=3.0).fits == LDS.fits


@pytest.mark.parametrize(
    "shape, clocks", [("1 wave(s), conflict-free", 8), ("4 wave(s), 4-way", 64), ("4 wave(s), unaligned +4", 256)]
)
def test_microbenchmarks_of_lds(shape: str, clocks: int) -> None:
    assert measured.predicted(replace(LDS, shape=shape)) == pytest.approx(clocks, rel=0.01)


def test_what_nobody_can_run_is_not_judged() -> None:
    with pytest.raises(NotJudged, match="no code object"):
        measured.predicted(replace(LDS, kernel="HK layernorm"))
    with pytest.raises(NotJudged, match="not known"):
        measured.predicted(replace(LDS, board="GeForce"))


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


def test_the_table_sums_up_errors() -> None:
    rows = [Judged("aiter", "compute", "b", "f8", str(at), 100.0, 100.0 + error) for at, error in enumerate((10, -20, 30))]
    line = next(line for line in table(rows) if line.group == "compute")
    assert [line.count, line.mape, line.median, line.p90, line.bias] == pytest.approx([3, 20, 20, 30, 20 / 3])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, [LDS, replace(LDS, kernel="HK x")])
    assert main(["validate-time", "--data", str(folder), "--sets", "measured", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lines"][0]["count"] == 1 and found["rows"][0]["predicted"] == pytest.approx(64, rel=0.01)
    assert found["not_judged"][0]["count"] == 1
    assert main(["validate-time", "--data", str(folder), "--sets", "measured", "--ablate"]) == 0
    out = capsys.readouterr().out
    assert "MAPE % with a mechanism off" in out and "no code object" in out


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
