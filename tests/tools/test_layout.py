"""`simgpu layout`: tables, look-ups both ways, pictures, the probe in the simulator, chaining."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.errors import ToolchainError
from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from simgpu.matrix.one_mfma import places
from simgpu.tools.cli import main
from simgpu.tools.matrix.fragments import Fragment, formula, ranges
from simgpu.tools.matrix.structured_test import probe, product
from tests.support.exhaustive import one_in
from tests.support.places import ROOT
from tests.support.sweeps import swept

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
ROWS = [row for target in TARGETS for row in instructions(target)]
Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(("layout", *arguments)) == status
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def document(capsys: Capture, *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def failed(capsys: Capture, *arguments: str) -> str:
    assert main(("layout", *arguments)) == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.count("\n") == 1
    return out.err


def test_the_table(capsys: Capture) -> None:
    text = printed(capsys, "v_mfma_f32_16x16x16f16", "--target", "mi300x")
    assert "v_mfma_f32_16x16x16_f16 on gfx942" in text and "4 passes (16 clocks)" in text
    lines = text.splitlines()
    a = lines[lines.index("A[i,k] (f16)") :]
    assert next(line.split() for line in a if line.startswith("  17")) == ["17", "1,4", "1,5", "1,6", "1,7"]
    d = lines[lines.index("D[i,j] (f32)") :]
    assert next(line.split() for line in d if line.startswith("  17")) == ["17", "4,1", "5,1", "6,1", "7,1"]
    assert sum(line.lstrip().startswith("63 ") for line in lines) == 3


@pytest.mark.parametrize("row", one_in(3, ROWS[::5]), ids=lambda row: f"{row.target}-{row.mnemonic}")
def test_json_and_csv_have_every_element_once(capsys: Capture, row: MatrixInstruction) -> None:
    made = document(capsys, row.mnemonic, "--target", row.target)
    records = list(csv.DictReader(io.StringIO(printed(capsys, row.mnemonic, "--target", row.target, "--csv"))))
    flat = [record for operand in made["operands"].values() for record in operand["elements"]]
    assert [{key: str(value) for key, value in record.items()} for record in flat] == records
    for name, operand in made["operands"].items():
        owners = places(row._formats(), name)
        assert len(operand["elements"]) == owners[..., 0].size
        for e in operand["elements"]:
            assert (owners[e["block"], e["row"], e["column"]] == (e["register"], e["lane"], e["bit"])).all()


def test_look_ups_both_ways(capsys: Capture) -> None:
    name = ("v_mfma_f32_32x32x8f16", "--target", "gfx90a")
    place = document(capsys, *name, "--element", "9,3", "--operand", "d")["places"]["D"]
    assert place == {"register": 5, "lane": 3, "bit": 0}
    held = document(capsys, *name, "--lane", "3", "--register", "5", "--operand", "D")["operands"]["D"]["elements"]
    assert [(e["row"], e["column"]) for e in held] == [(9, 3)]
    assert printed(capsys, *name, "--element", "9,3").splitlines() == [
        "A[9,3]: lane 9, register 1, bits 16 to 31",
        "D[9,3]: lane 3, register 5",
    ]
    f64 = printed(capsys, "v_mfma_f64_16x16x4f64", "--target", "gfx90a", "--element", "5,1", "--operand", "D")
    assert f64 == "D[5,1]: lane 17, registers 2 and 3\n"
    assert "D,0,5,0,0,1,1\n" in printed(capsys, "v_mfma_f32_4x4x1f32", "--target", "gfx908", "--element", "0,1,1", "--csv")


def test_modifiers_are_applied(capsys: Capture) -> None:
    name = ("v_mfma_f32_4x4x1f32", "--target", "gfx908", "--operand", "A")
    made = document(capsys, *name, "--cbsz", "2", "--abid", "1")
    assert made["applied"] == {"cbsz": 2, "abid": 1}
    lanes = {e["lane"] for e in made["operands"]["A"]["elements"]}
    assert lanes == {16 * group + 4 + i for group in range(4) for i in range(4)}
    assert "1,0.0-3" in printed(capsys, *name, "--cbsz", "2", "--abid", "1", "--lane", "5")
    row = find("v_mfma_f32_16x16x4f32", "gfx908")
    seen = Fragment.of(row, "B", {"cbsz": 0, "abid": 0, "blgp": 1}).elements
    assert {lane for _, lane, _ in seen} == set(range(32))
    wide = document(capsys, "v_mfma_f32_16x16x128_f8f6f4", "--target", "gfx950", "--cbsz", "4", "--blgp", "2")
    assert (wide["a_type"], wide["b_type"], wide["registers"]["A"], wide["registers"]["B"]) == ("fp4", "fp6", 4, 6)


def test_unverified_layouts_say_so(capsys: Capture) -> None:
    text = printed(capsys, "v_mfma_scale_f32_16x16x128_f8f6f4:fp6:fp4", "--target", "gfx950", "--lane", "0")
    assert text.count("UNVERIFIED") == 4 and "scales of A" in text
    made = document(capsys, "v_mfma_f32_32x32x2_f32", "--target", "gfx950")
    assert all(operand["verified"] for operand in made["operands"].values())


@pytest.mark.parametrize("target", TARGETS)
def test_list(capsys: Capture, target: str) -> None:
    rows = instructions(target)
    assert [entry["mnemonic"] for entry in document(capsys, "--list", "--target", target)] == [r.mnemonic for r in rows]
    text = printed(capsys, "--list", "--target", target)
    assert all(row.mnemonic in text for row in rows) and f"{len(rows)} matrix instructions of {target}" in text
    lines = csv.DictReader(io.StringIO(printed(capsys, "--list", "--target", target, "--csv")))
    flops = {line["mnemonic"]: line["FLOP/clock/CU"] for line in lines}
    assert flops[find("v_mfma_f32_32x32x2f32", target).mnemonic] == "256"


@swept("row", ROWS, ids=lambda row: f"{row.target}-{row.mnemonic}")
def test_printed_formulas_are_the_maps(row: MatrixInstruction) -> None:
    """Evaluates the printed text."""
    row = row._formats()
    for operand in ["A", "B", "D"] + ["IDX"] * row.sparse + ["SCALE_A", "SCALE_B"] * row.scaled:
        text = formula(row, operand).partition(": lane = ")[2]
        lane_text, _, rest = text.partition("; ")
        block, i, j = np.indices((row.blocks, *row.shape(operand)))
        names = {"i": i, "j": j, "block": block, "k": i if operand in ("B", "SCALE_B") else j}
        owners = row.map(operand)
        assert (eval(lane_text, {}, names) == owners[..., 1]).all(), text
        if rest.startswith("register"):
            expression = rest.removeprefix("registers ").removeprefix("register = ").removesuffix(" and the next")
            assert (eval(expression, {}, names) == owners[..., 0]).all(), text
        else:
            expression = rest.removeprefix("bits from ").partition(" of its registers")[0]
            assert (eval(expression, {}, names) == 32 * owners[..., 0] + owners[..., 2]).all(), text


def test_svg(capsys: Capture, tmp_path) -> None:
    for name, target, cells in (
        ("v_mfma_f32_16x16x4f32", "gfx908", 64 + 64 + 256),
        ("v_mfma_f32_4x4x4f16", "gfx90a", 3 * 256),
        ("v_smfmac_f32_16x16x32_f16", "gfx942", 256 + 512 + 128 + 256),
        ("v_mfma_f32_4x4x1f32", "gfx908", 64 + 64 + 256),
    ):
        path = tmp_path / f"{name}.svg"
        assert printed(capsys, name, "--target", target, "--svg", str(path)) == ""
        root = ET.fromstring(path.read_text())
        groups = root.findall("{http://www.w3.org/2000/svg}g")
        assert len(groups) == cells
        width, height = float(root.get("width")), float(root.get("height"))
        boxes = [g.find("{http://www.w3.org/2000/svg}rect") for g in groups]
        corners = {(float(b.get("x")), float(b.get("y"))) for b in boxes}
        assert len(corners) == cells, "no two elements overlap"
        assert all(0 <= x < width and 0 <= y < height for x, y in corners)
        _assert_that_texts_lie_apart(root, width, height)
    assert "exists" in failed(capsys, name, "--target", target, "--svg", str(path))


PICTURES = {
    "16x16x4f32": "v_mfma_f32_16x16x4f32 --target gfx908",
    "16x16x16_f16": "v_mfma_f32_16x16x16_f16 --target gfx942",
    "32x32": "v_mfma_f32_32x32x8_f16 --target gfx942 --operand D",
    "4x4x1f32": "v_mfma_f32_4x4x1f32 --target gfx908",
    "4x4x1f32_cbsz": "v_mfma_f32_4x4x1f32 --target gfx908 --operand A --cbsz 2 --abid 1",
    "smfmac_a": "v_smfmac_f32_16x16x32_f16 --target gfx942 --operand A",
}  # of docs/explanation/fragments.md


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation(capsys: Capture, tmp_path, name: str) -> None:
    kept = f"docs/pictures/fragments_{name}.svg"
    printed(capsys, *PICTURES[name].split(), "--svg", str(tmp_path / "now.svg"))
    assert (tmp_path / "now.svg").read_text() == (ROOT / kept).read_text(), f"simgpu layout {PICTURES[name]} --svg {kept} --force"


def _assert_that_texts_lie_apart(root: ET.Element, width: float, height: float) -> None:
    """Asserts it with the sizes of the style sheet, and monospaced characters 0.6 of them wide."""
    boxes = []
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        size = float(text.get("font-size") or {"l": 12, "r": 9, "i": 9}[str(text.get("class"))])
        wide, x, y = 0.6 * size * len(str(text.text)), float(str(text.get("x"))), float(str(text.get("y")))
        left = x if text.get("class") == "h" else x - wide / 2
        boxes.append((left, left + wide, y - 0.75 * size, y))
    left, right, top, bottom = np.array(boxes).T
    assert left.min() >= 0 and right.max() <= width and top.min() >= 0 and bottom.max() <= height
    across = (left < right[:, None]) & (left[:, None] < right)
    along = (top < bottom[:, None]) & (top[:, None] < bottom)
    assert (across & along).sum() == len(boxes), "texts overlap"


def assembler() -> None:
    try:
        assemble(".text\n", "gfx908")
    except ToolchainError as error:
        pytest.skip(str(error))


# One of each shape and type; only one of the large formats, which are slow to compile.
PROBED = list({(r.m, r.n, r.k, r.blocks, r.a_type, r.sparse): r for r in ROWS if r.k <= 32}.values())
PROBED.append(find("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950"))


@pytest.mark.parametrize("row", PROBED, ids=lambda row: f"{row.target}-{row.mnemonic}")
def test_the_probe_finds_the_layout_that_the_table_says(row: MatrixInstruction) -> None:
    """Probes are real code: assembled, launched, D's registers read back. A layout that is off by one lane fails."""
    assembler()
    gpu = simgpu.Device(row.target, threads=1)
    result = probe(row, gpu)
    assert result.agrees
    wide = 2 if row.cd_type == "f64" else 1
    expected = np.array([[row.element("D", r * wide, lane)[0] for lane in range(64)] for r in range(len(result.registers))])
    assert (result.registers == expected).all()
    wrong, total = product(row, gpu)
    assert wrong == 0 and total == row.blocks * row.m * row.n


def test_the_probe_shows_the_papers_pitfall(capsys: Capture) -> None:
    assembler()
    made = document(capsys, "v_mfma_f32_16x16x4f32", "--target", "mi100", "--probe")
    assert made["agrees"] and made["D"] == [[i] * 16 for i in range(16)]
    naive = np.array(made["rows_by_register_and_lane"])[:, :16].T
    assert (naive == np.arange(4)).all(), "lanes 0 to 15, read as rows 0 to 15, say 0 1 2 3: the transpose"
    assert made["naive_wrong"] == 240
    text = printed(capsys, "v_mfma_f32_16x16x4f32", "--target", "mi100", "--probe")
    assert "right in 16 of 256" in text and "it agrees" in text


def test_chain(capsys: Capture) -> None:
    pair = ("--chain", "v_mfma_f32_16x16x4f32", "v_mfma_f32_16x16x4f32", "--target", "gfx908")
    made = document(capsys, *pair)["operands"]
    assert made["A"]["free"] and made["B"]["rows"] == [[s + 4 * g for g in range(4)] for s in range(4)]
    assert "s = 1: 1 5 9 13" in printed(capsys, *pair)
    text = printed(capsys, "--chain", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x16_f16", "--operand", "B")
    assert "not as it is" in text and "ds_swizzle_b32" in text and "v_cvt_f16_f32" in text
    assert "natural" in printed(capsys, "--chain", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_32x32x8_f16")
    sparse = printed(capsys, "--chain", "v_mfma_f32_16x16x16_f16", "v_smfmac_f32_16x16x32_f16")
    assert "no. A of an smfmac" in sparse
    split = printed(capsys, "--chain", "v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x1_4b_f32", "--operand", "B")
    assert "partial sums, add them: 0 + 1 + 2 + 3" in split


ERRORS = [
    ((), "name a matrix instruction"),
    (("v_mfma_f32_16x16x4f33",), "near:"),
    (("v_mfma_f32_16x16x4f32", "--target", "gfx1"), "unknown target"),
    (("v_mfma_f32_16x16x4f32", "--operand", "E"), "it has A, B, C, D"),
    (("v_mfma_f32_16x16x4f32", "--lane", "64"), "0 to 63"),
    (("v_mfma_f32_16x16x4f32", "--register", "4"), "0 to 3"),
    (("v_mfma_f32_16x16x4f32", "--element", "1"), "row,column"),
    (("v_mfma_f32_16x16x4f32", "--element", "16,0"), "no operand has element 16,0"),
    (("v_mfma_f32_16x16x4f32", "--cbsz", "1"), "takes no cbsz"),
    (("v_mfma_f32_4x4x1f32", "--cbsz", "5"), "names no block"),
    (("v_mfma_f32_16x16x128_f8f6f4:fp4", "--cbsz", "1", "--target", "gfx950"), "names its formats already"),
    (("v_mfma_f32_16x16x4f32", "--blgp", "1", "--probe"), "without modifiers"),
    (("v_mfma_f32_16x16x4f32", "--csv", "--json"), "choose one"),
    (("--chain", "v_mfma_f32_16x16x4f32", "x"), "no matrix instruction 'x'"),
    (("v_mfma_f32_16x16x4f32", "--svg", "/nowhere/x.svg"), "there is no folder"),
]


@pytest.mark.parametrize("arguments, words", ERRORS, ids=lambda case: " ".join(case) if isinstance(case, tuple) else "")
def test_errors(capsys: Capture, arguments: tuple[str, ...], words: str) -> None:
    assert words in failed(capsys, *arguments)


def test_ranges() -> None:
    assert ranges([0]) == "0" and ranges([0, 1, 2, 8]) == "0-2+8"
