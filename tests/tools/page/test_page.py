"""Pages in a real browser, opened as files with the network off: no request, no complaint, content, one selection in all views."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import ml_dtypes
import numpy as np
import pytest

from simgpu.hardware.mfma import find
from simgpu.tools.cli import main
from simgpu.tools.page.fragments import instruction
from simgpu.tools.page.page import MOST_BYTES, SCRIPTS, Page, read_document
from simgpu.tools.shared.errors import UsageError
from tests.support.browser import Opened, needs_browser
from tests.support.exhaustive import left_out
from tests.support.places import ROOT

PAGES = ("gemm", "broken", "layout", "chain", "time", "trace", "report", "tight")


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Returns a page by its name in PAGES."""
    if request.param in ("gemm", "broken"):
        file: Path = request.getfixturevalue(request.param)
        return file
    file = tmp_path / "page.html"
    words = {
        "layout": ["layout", "v_mfma_f32_4x4x4f16", "--target", "gfx90a", "--cbsz", "2", "--abid", "1"],
        "time": ["time", "attention", "-L", "100", "-d", "64", "--dtype", "f16", "--target", "mi355x"],
        "report": ["report", "conv2d", *"--ic 16 --ih 20 --iw 20 --oc 32 --kh 3 --kw 3".split(), "--target", "mi210"],
        "trace": ["trace", *"gemm -m 40 -n 36 -k 20 --at 0x20 --wave 1 --show".split(), "v[0:2],s8"],
        "tight": ["derive", "attention", "-L", "1024", "-d", "4096"],
        "chain": ["layout", "--chain", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_32x32x8_f16", "--target", "gfx942"],
    }[request.param]
    assert main([*words, "--html", str(file)]) == (2 if request.param == "tight" else 0)
    return file


# Shapes, rows and pixels of pictures.
DRAWN = """() => {
  const pixels = (one) => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.filter(Boolean).length;
  return document.querySelectorAll('main .row, main td, main svg rect, main svg path').length
    + [...document.querySelectorAll('main canvas')].reduce((sum, one) => sum + pixels(one), 0);
}"""


@needs_browser
@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_every_view_has_content_and_nothing_is_fetched(page: Path, opened: Opened) -> None:
    opened.open(page)
    tabs = opened.page.query_selector_all("[role=tab]")
    assert tabs
    for number in range(1, len(tabs) + 1):
        opened.page.keyboard.press(str(number))
        selected = [tab.get_attribute("id") for tab in opened.page.query_selector_all("[role=tab][aria-selected=true]")]
        assert selected == [tabs[number - 1].get_attribute("id")]
        assert opened.page.evaluate("document.querySelector('main').innerText.length") > 100
        assert opened.page.evaluate(DRAWN) > 5
        assert "undefined" not in opened.page.inner_text("body") and "NaN" not in opened.page.inner_text("main")
    assert opened.errors == []
    assert opened.requests == [page.resolve().as_uri()]
    assert page.stat().st_size < MOST_BYTES


@needs_browser
def test_a_selection_holds_in_all_views_and_in_the_address(gemm: Path, opened: Opened) -> None:
    document = read_document(str(gemm))
    kernel = document["kernels"][0]
    row = int(max(kernel["visits"], key=int))
    opened.open(gemm, f"row={row}")
    selected = opened.page.inner_text(".row.on[role=option] .text")
    assert selected == kernel["code"]["columns"]["text"][row]
    assert kernel["code"]["columns"]["text"][row] in opened.page.inner_text(".details")
    opened.page.click("text=its fragments")
    assert opened.page.inner_text("summary code") == kernel["matrix"][str(row)]
    opened.page.click(".o-D [data-at='17']")
    assert re.search(r"D\[1, 1\]\s+lane", opened.page.inner_text(".info"))
    chosen = {key: value[0] for key, value in parse_qs(opened.fragment).items()}
    assert chosen == {"view": "fragments", "row": str(row), "operand": "D", "element": "17", "lane": "1"}
    # A copy of the address opens the same place; so does going back from another one.
    opened.open(gemm, opened.fragment)
    assert "D[1, 1]" in opened.page.inner_text(".info")
    opened.run("() => { location.hash = 'view=source&row=3'; }")
    opened.page.wait_for_selector("#i3.on")
    # With the keyboard only.
    opened.page.focus(".list[role=listbox]")
    opened.page.keyboard.press("ArrowDown")
    assert opened.page.get_attribute(".row.on[role=option]", "id") == "i4"
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("v_mfma")
    hits = sum("v_mfma" in text for text in kernel["code"]["columns"]["text"])
    assert f"{hits} found" in opened.page.inner_text(".bar")
    assert "v_mfma" in opened.page.inner_text(".row.on[role=option] .text")


@needs_browser
def test_a_source_line_selects_its_instructions(broken: Path, opened: Opened) -> None:
    opened.open(broken)
    opened.page.click(".line.code:has-text('v_xor_b32')")
    assert "v_xor_b32_e32 v2, 0x100, v1" in opened.page.inner_text(".row.on[role=option]")
    opened.page.click(".findings button:has-text('missing-wait')")
    assert "ds_write_b32" in opened.page.inner_text(".row.on[role=option]")
    assert "s_waitcnt lgkmcnt(0) is needed" in opened.page.inner_text(".details pre")


TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2,
    "fp8_fnuz": ml_dtypes.float8_e4m3fnuz, "bf8_fnuz": ml_dtypes.float8_e5m2fnuz, "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn, "i8": np.int8, "e8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
VALUES = """([type, width, count]) => Array.from({length: count}, (_, raw) => String(simgpu.valueOf(type, width, BigInt(raw))))"""


@needs_browser
def test_numbers_are_those_of_ml_dtypes(gemm: Path, opened: Opened) -> None:
    """Every number of every type of up to 16 bits is compared."""
    opened.open(gemm)
    for kind, dtype in TYPES.items():
        width = {"fp6": 6, "bf6": 6, "fp4": 4}.get(kind, 8 * np.dtype(dtype).itemsize)
        raw = np.arange(1 << width).astype(f"u{max(8, width) // 8}")
        with np.errstate(invalid="ignore"):  # signalling NaNs
            want = raw.view(dtype).astype(np.float64)
        got = [float(value.replace("Infinity", "inf")) for value in opened.run(VALUES, kind, width, len(raw))]
        np.testing.assert_array_equal(np.array(got), want, kind)


@needs_browser
def test_wide_numbers_are_numpys(gemm: Path, opened: Opened) -> None:
    rng = np.random.default_rng(1)
    opened.open(gemm)
    script = "([type, width, all]) => all.map((raw) => String(simgpu.valueOf(type, width, BigInt(raw))))"
    for kind, width, dtype in (("f32", 32, np.float32), ("f64", 64, np.float64), ("i32", 32, np.int32)):
        raw = rng.integers(0, 1 << 63, 300, np.uint64).astype(f"u{width // 8}")
        raw[:3] = 0, 1, 1 << (width - 1)
        got = [float(text.replace("Infinity", "inf")) for text in opened.run(script, kind, width, [str(x) for x in raw])]
        with np.errstate(invalid="ignore"):  # signalling NaNs
            np.testing.assert_array_equal(got, raw.view(dtype).astype(np.float64))


@needs_browser
@pytest.mark.parametrize("mnemonic", [
    "v_mfma_f32_4x4x4_16b_f16", left_out("v_mfma_f32_16x16x16_f16"),
    left_out("v_mfma_f64_16x16x4_f64"),
])  # fmt: skip
def test_a_pasted_layout_is_compared_element_by_element(mnemonic: str, opened: Opened, tmp_path: Path) -> None:
    row = find(mnemonic, "gfx942")
    document = instruction(row, {})
    file = tmp_path / "layout.html"
    Page(mnemonic, {"fragments": [document]}).save(file)
    opened.open(file)
    for name, operand in document["operands"].items():
        for text in (operand["triton"], operand["cute"]):
            opened.page.fill("textarea", text)
            opened.page.select_option("select[aria-label=operand]", name)
            opened.page.click("text=Compare")
            assert f"The same as {name}: all {len(operand['places']):,} elements" in opened.page.inner_text(".said")
    # Two lanes' bases exchanged: moved elements are outlined.
    text = re.sub(r"(lane = \[)(\[[^\]]*\]), (\[[^\]]*\])", r"\1\3, \2", document["operands"]["D"]["triton"])
    opened.page.fill("textarea", text)
    opened.page.select_option("select[aria-label=operand]", "D")
    opened.page.click("text=Compare")
    assert "lie elsewhere" in opened.page.inner_text(".said") and opened.page.query_selector_all(".o-D .cell.wrong")
    for bad in ("", "register = [[0, 1]]", "(64,4):(1", "((32,2),4):((1,2),3)", "(16,4):(1,16)"):
        opened.page.fill("textarea", bad)
        opened.page.click("text=Compare")
        assert len(opened.page.inner_text(".said")) > 10
    assert opened.errors == []


@needs_browser
def test_values_of_a_visit_are_the_products(gemm: Path, opened: Opened) -> None:
    """D - C is A B in every visit on the page, within float64."""
    opened.open(gemm, "view=fragments")
    found: list[dict[str, Any]] = opened.run(PRODUCTS)
    assert len(found) > 3
    for visit in found:
        a, b, c, d = (np.array(visit[name]).reshape(shape) for name, shape in zip("ABCD", visit["shapes"], strict=True))
        np.testing.assert_allclose(a @ b + c, d, rtol=1e-5, atol=1e-4)


PRODUCTS = """() => {
  const kernel = simgpu.doc.kernels[0], found = [];
  for (const [row, visits] of Object.entries(kernel.visits)) {
    const one = simgpu.doc.fragments.find((f) => f.key === kernel.matrix[row]), { A, B, D } = one.operands;
    visits.forEach((visit) => {
      const values = (operand, text) => text ? simgpu.valuesOf(operand, text) : operand.places.map(() => 0);
      found.push({ A: values(A, visit.A), B: values(B, visit.B), C: values(D, visit.C), D: values(D, visit.D),
        shapes: [A, B, D, D].map((o) => [o.rows, o.columns]) });
    });
  }
  return found;
}"""


@needs_browser
def test_it_prints(gemm: Path, opened: Opened) -> None:
    """All instructions are on the paper, not only the visible ones."""
    opened.open(gemm)
    opened.page.emulate_media(media="print")
    opened.run("() => dispatchEvent(new Event('beforeprint'))")
    count = len(read_document(str(gemm))["kernels"][0]["code"]["columns"]["text"])
    assert opened.page.locator("[role=option]").count() == count


# -- without a browser -----------------------------------------------------------------------------


def test_the_script_is_small_and_all_of_it_is_used() -> None:
    folder = ROOT / "tools" / "page" / "script"
    assert {path.name for path in folder.iterdir()} == set(SCRIPTS)
    assert sum((folder / name).stat().st_size for name in SCRIPTS) <= 85_000
    outside = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|\bimport\b|\bfetch\(|XMLHttpRequest")
    for name in SCRIPTS:
        assert not outside.search((folder / name).read_text()), name


@pytest.mark.slow
def test_a_document_too_large_does_without_parts_and_says_so() -> None:
    rng = np.random.default_rng(0)
    noise = rng.bytes(4_500_000).hex()
    page = Page("large", {"kernels": [{"name": "k", "visits": noise, "code": {}}, {"name": "l", "code": {}}]})
    text = page.html()
    assert len(text.encode()) <= MOST_BYTES and "visits" in page.document["kernels"][0]
    with pytest.raises(UsageError, match="would be larger than 5 MB"):
        Page("too large", {"kernels": [{"name": noise}]}).html()


def test_what_was_left_out_stands_in_the_page(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(4_500_000).hex()
    Page("large", {"kernels": [{"name": "k", "visits": noise}]}).save(tmp_path / "p.html")
    document = read_document(str(tmp_path / "p.html"))
    assert document["kernels"] == [{"name": "k"}]
    assert document["notes"] == ["left out, as the page would be larger than 5 MB: values of matrix instructions"]


def test_text_of_a_document_is_text(tmp_path: Path) -> None:
    text = Page("</title><script>alert(1)</script>", {"kernels": [{"name": "</script>"}]}).html()
    assert text.count("<script") == 2 and "<script>alert" not in text


@pytest.mark.parametrize(
    "words, said",
    [
        (["run", "softmax", "--rows", "1", "-n", "8", "--html", "none/p.html"], "there is no folder none"),
        (["run", "softmax", "--rows", "1", "-n", "8", "--html", "here.html"], "here.html exists"),
        (["run", "softmax", "--rows", "1", "-n", "8", "--device", "hip", "--html", "p.html"], ""),
        (["layout", "v_mfma_f32_16x16x16_f16", "--html", "here.html"], "here.html exists"),
        (["check", "softmax", "--rows", "1", "-n", "8", "--html", "here.html"], "here.html exists"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.html").write_text("kept")
    assert main(words) == 2
    heard = capsys.readouterr()
    assert said in heard.err and heard.out == "" and (tmp_path / "here.html").read_text() == "kept"


def test_a_file_that_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text("<html>")
    with pytest.raises(UsageError, match="no page of simgpu"):
        read_document(str(tmp_path / "p.html"))


def test_a_kernel_that_fails_leaves_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed kernel's page has the error, and the instructions without counts."""
    assert main(["museum", "barrier-before-wait", "--save", str(tmp_path)]) == 0
    words = ["exec", str(tmp_path / "barrier-before-wait-before.s"), "--grid", "1", "--arg", "zeros:f32:2", "--arg", "zeros:f32:2"]
    assert main([*words, "--html", str(tmp_path / "page.html")]) == 1
    (kernel,) = read_document(str(tmp_path / "page.html"))["kernels"]
    assert "MemoryFault" in kernel["error"] and kernel["instructions"] == 0
    assert "executions" not in kernel["code"]["columns"] and "global_load_dword" in " ".join(kernel["code"]["columns"]["text"])
