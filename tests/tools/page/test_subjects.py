"""`simgpu.page`, `Run.html` and Jupyter's view: self-contained, of the requested subject, which stays unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import simgpu
from simgpu import Device, LaunchError, asm, hardware
from simgpu.debugger.snapshot import trace
from simgpu.operators import FusedAttention, TiledComputation, derive_tiles
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.tools.page.page import read_document
from tests.support.browser import Opened, needs_browser
from tests.support.kernels import loaded_kernel

ADD = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_u32 v2, 1, v2
  global_store_dword v1, v2, s[4:5]
"""


def parsed(html: str) -> ElementTree.Element:
    """Parses the fragment as XML: every tag is closed, every character that must be is escaped."""
    return ElementTree.fromstring(f"<div>{re.sub(r'<br>', '<br/>', html)}</div>")


def text_of(html: str) -> str:
    return "".join(parsed(html).itertext())


@pytest.fixture
def run() -> simgpu.Run:
    device = Device("mi300x", check=True)
    buffer = device.upload(np.arange(64, dtype=np.uint32))
    return loaded_kernel(device, ADD.replace("  s_waitcnt vmcnt(0)\n", ""), "buffer").launch(grid=1, args=[buffer])


def test_a_runs_page_leaves_its_buffers_alone(tmp_path: Path) -> None:
    device = Device("mi300x")
    buffer = device.upload(np.arange(64, dtype=np.uint32))
    run = loaded_kernel(device, ADD, "buffer").launch(grid=1, args=[buffer])
    page = run.html(tmp_path / "run.html")
    np.testing.assert_array_equal(buffer.download(), np.arange(1, 65))
    document = read_document(str(tmp_path / "run.html"))
    assert document["kernels"][0]["instructions"] == run.instructions == 8
    assert page._repr_html_().startswith("<iframe srcdoc=") and "<script" not in page._repr_html_()


def test_a_launch_with_global_size_and_one_of_an_operator() -> None:
    device = Device("mi300x")
    buffer = device.upload(np.arange(100, dtype=np.uint32))
    run = loaded_kernel(device, ADD, "buffer").launch(global_size=100, args=[buffer])
    assert run.html().document["kernels"][0]["global_size"] == [100]
    tree = TiledComputation(24, 24, 24, target="mi300x", dtype="f16")
    buffers = [device.upload(np.ones((24, 24), np.float16)) for _ in "AB"] + [device.upload(np.zeros((24, 24), np.float32))]
    (run,) = asm.launch(asm.emit(tree), device, *buffers)
    assert run.html().document["kernels"][0]["visits"]


def test_findings_are_shown_as_text(run: simgpu.Run) -> None:
    (finding,) = run.findings
    assert finding.message in text_of(finding._repr_html_())
    shown = text_of(run._repr_html_())
    assert finding.message in shown and f"{run.counters['global_read_bytes']:,}" in shown
    (told,) = run.html().document["kernels"][0]["code"]["findings"]
    assert told["kind"] == "missing-wait"


def test_layouts_snapshots_and_plans() -> None:
    row = hardware.mfma.find("v_mfma_f32_16x16x16_f16", "gfx942")
    cells = [cell.text for cell in parsed(row._repr_html_()).iter("td")]
    assert cells == [str(row.owner("D", i, j)[1]) for i in range(16) for j in range(16)]
    device = Device("mi300x")
    kernel = loaded_kernel(device, ADD, "buffer")
    (snapshot,) = trace(kernel, [0x20], args=[device.upload(np.arange(64, dtype=np.uint32))])
    shown = parsed(snapshot._repr_html_())
    assert "global_store_dword" in "".join(shown.itertext()) and len(list(shown.iter("td"))) % 64 == 0
    tree = TiledComputation(100, 70, 50, target="mi300x")
    text = text_of(tree._repr_html_())
    assert tree.tree() in text and all(row.name in text for row in tree.derivation.constraints)
    tight = FusedAttention(AttentionProblem(1024, 1024, 4096), "mi100", "corrected")
    assert tight.derivation.remedy in text_of(tight._repr_html_())
    for plan in (tree.derivation, tight.derivation, derive_tiles(hardware.target("mi300x"), L=4096, d=128)):
        text = text_of(plan._repr_html_())
        assert plan.title in text and all(row.name in text and row.unit in text for row in plan.constraints)
        assert all(name in text for name in plan.sizes) if plan.feasible else plan.remedy in text


@needs_browser
def test_pages_of_a_layout_and_a_plan(opened: Opened, tmp_path: Path) -> None:
    for subject in (hardware.mfma.find("v_mfma_f32_32x32x16_f16", "mi355x"), TiledComputation(100, 70, 50, target="mi300x")):
        simgpu.page(subject).save(tmp_path / "page.html")
        opened.open(tmp_path / "page.html")
        assert opened.page.query_selector_all("main svg rect") and opened.errors == []


@pytest.mark.parametrize("subject", [3, "v_mfma", None])
def test_what_has_no_page(subject: object) -> None:
    with pytest.raises(LaunchError, match="no page of"):
        simgpu.page(subject)


def test_a_run_that_is_no_launch_has_none() -> None:
    for ask in (lambda run: run.html(), lambda run: run.time(), simgpu.page):
        with pytest.raises(LaunchError, match="it is not one of simgpu"):
            ask(simgpu.Run(1, 1.0, {}))
