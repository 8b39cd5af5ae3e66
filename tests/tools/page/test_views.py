"""Data of views: buffers against their bytes, waves against the model's log, trees and roofs against plans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import Device, asm, hardware
from simgpu.operators import Softmax, SoftmaxProblem, TiledComputation
from simgpu.tools.cli import main
from simgpu.tools.page.page import read_document
from simgpu.tools.page.plans import plan_point, roofline_document, run_point, tree_document
from simgpu.tools.page.traffic import EDGE, traffic_document
from simgpu.tools.page.watching import TouchedAllocation, Watching
from tests.support.browser import Opened, needs_browser
from tests.support.exhaustive import examples


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 40), st.integers(0, 1 << 30))
@settings(max_examples=examples(40))
def test_a_picture_holds_every_byte(rows: int, width: int, behind: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    read, written = (rng.random(rows * width + behind) < rng.random() for _ in range(2))
    packed = [np.packbits(bits, bitorder="little") for bits in (read, written)]
    (one,) = traffic_document([TouchedAllocation(16, len(read), "", *packed)], {16: "A"}, {16: (rows, width)})
    unit = one["unit"]
    assert width % unit == 0 and unit in (1, 8)
    assert (one["rows"], one["row_bytes"], one["down"], one["across"]) == (rows, width, min(rows, EDGE), min(width // unit, EDGE))
    assert (one["read"], one["written"], one["both"]) == (read.sum(), written.sum(), (read & written).sum())
    assert one["never"] == len(read) - (read | written).sum() and one["behind"] == (read | written)[rows * width :].sum()
    cells = np.array(one["cells"]).reshape(one["down"], one["across"], 3)
    kinds = read & ~written, written & ~read, read & written
    for i, j in [(0, 0), (one["down"] - 1, one["across"] - 1), (one["down"] // 2, one["across"] // 3)]:
        top, bottom = i * rows // one["down"], (i + 1) * rows // one["down"]
        left, right = (unit * (at * (width // unit) // one["across"]) for at in (j, j + 1))
        for kind, bits in enumerate(kinds):
            part = bits[: rows * width].reshape(rows, width)[top:bottom, left:right]
            assert cells[i, j, kind] == np.ceil(255 * part.sum() / part.size)


def test_what_a_kernel_does_not_touch_is_told() -> None:
    """Softmax of rows with a stride neither reads nor writes the bytes between rows."""
    tree = Softmax(SoftmaxProblem(20, 30, ldx=50, ldy=40), "mi300x", "corrected")
    device, watching = Device("mi300x"), Watching()
    buffers = [device.upload(np.zeros(20 * width, np.float32)) for width in (50, 40)]
    for entry, call in asm.Prepared(asm.emit(tree), device).calls(*buffers):
        watching.launch(entry, **call)
    touched = {one.address: one for one in watching.launches[-1].touched}
    for buffer, width, what in ((buffers[0], 50, "read"), (buffers[1], 40, "written")):
        bits = np.unpackbits(getattr(touched[buffer.address], what), bitorder="little").reshape(20, 4 * width)
        assert bits[:, :120].all() and not bits[:, 120:].any()


def test_a_tree_is_what_derive_says(tmp_path: Path) -> None:
    tree = TiledComputation(1000, 777, 333, target="mi300x", dtype="f16")
    document = tree_document(tree)
    assert [node["level"] for node in document["nodes"]] == ["device", "block", "warp", "atom"]
    names = [row["name"] for node in document["nodes"] for row in node["constraints"]]
    levels = ("device", "block", "warp", "atom")
    assert names == [row.name for level in levels for row in tree.derivation.constraints if row.level == level]
    assert document["binding"] == tree.derivation.binding.name
    c = next(view for view in document["nodes"][1]["views"] if view["operand"] == "C")
    assert [extent[2] for extent in c["extents"]] == [tree.plan.tile_m, tree.plan.tile_n]
    assert document["nodes"][0]["children"] == -(-1000 // tree.plan.tile_m) * -(-777 // tree.plan.tile_n)


def test_a_roof_is_the_descriptors() -> None:
    tree = TiledComputation(256, 256, 256, target="mi210", dtype="bf16")
    d = hardware.target("mi210")
    roof = roofline_document(tree, [plan_point(tree)])
    assert roof["peak"] == d.matrix_tflops("bf16") and roof["ceilings"]["HBM"] == d.hbm_bandwidth_tb
    assert roof["ceilings"]["LDS"] == pytest.approx(128 * d.num_cus * d.clock_mhz * 1e6 / 1e12)
    assert roof["points"][0]["flops"] == 2 * 256**3 and roof["points"][0]["bytes"]["HBM"] == 256 * 256 * (2 + 2 + 4)
    device = Device("mi210")
    buffers = [device.upload(np.zeros((256, 256), np.uint16)) for _ in "AB"] + [device.upload(np.zeros((256, 256), np.float32))]
    (run,) = asm.launch(asm.emit(tree), device, *buffers)
    point = run_point("k", run)
    assert point["flops"] == run.counters["mfma_flops"] and point["bytes"]["HBM"] == 256 * 256 * 8
    assert point["bytes"]["L2"] == run.counters["global_read_bytes"] + run.counters["global_write_bytes"]


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "time.html"
    assert main(["time", *"gemm -m 64 -n 64 -k 100 --dtype f16 --target mi300x --html".split(), str(file)]) == 0
    return file


def test_waves_are_the_models(timed: Path) -> None:
    kernel = read_document(str(timed))["kernels"][0]
    waves, columns = kernel["waves"], kernel["code"]["columns"]
    came = np.cumsum(waves["came"])
    assert (np.diff(came) >= 0).all() and all(0 <= i <= u for i, u in zip(waves["issue"], waves["until"], strict=True))
    assert (came + waves["until"]).max() <= waves["clocks"]
    times = np.bincount(waves["row"], minlength=len(columns["text"]))
    assert not waves["cut"] and times.tolist() == columns["executions"]
    for place in range(len(waves["places"])):  # a wave does one thing at a time
        mine = [at for at, where in enumerate(waves["place"]) if where == place]
        ends = came[mine] + np.array(waves["until"])[mine]
        assert (came[mine][1:] >= ends[:-1]).all()


@needs_browser
def test_an_event_selects_its_instruction(timed: Path, opened: Opened) -> None:
    kernel = read_document(str(timed))["kernels"][0]
    longest = int(np.argmax(kernel["waves"]["until"]))
    opened.open(timed, "view=waves")
    box = opened.page.query_selector("canvas").bounding_box()
    came, until = np.cumsum(kernel["waves"]["came"]), np.array(kernel["waves"]["until"])
    middle = (came[longest] + until[longest] / 2) / (came + until).max()
    high = (box["height"] - 24) / len(kernel["waves"]["places"])
    x, y = 110 + middle * (box["width"] - 110), 18 + (kernel["waves"]["place"][longest] + 0.5) * high
    opened.page.mouse.click(box["x"] + x, box["y"] + y)
    assert f"row={kernel['waves']['row'][longest]}" in opened.fragment
    assert kernel["code"]["columns"]["text"][kernel["waves"]["row"][longest]] in opened.page.inner_text("main")
    opened.page.keyboard.press("1")
    assert "stall" in opened.page.inner_text(".row.head:not(.line)")
    assert opened.errors == []
