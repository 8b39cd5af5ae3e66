"""Bytes that each instruction touches, and reads of each byte: against addresses computed here, and the bitmaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simgpu import Device, asm
from simgpu.hardware.errors import MemoryFault
from simgpu.operators import TiledComputation
from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.page import read_document
from simgpu.tools.page.watching import WatchedLaunch, Watching
from tests.support.browser import Opened, needs_browser
from tests.support.kernels import loaded_kernel

# Every workgroup reads dword (lane · stride + shift) of one buffer and adds 1 to dword lane of another; lanes below `few` only.
READS = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_mov_b64 exec, {exec}
  v_mul_u32_u24 v1, {stride}, v0
  v_lshlrev_b32 v2, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_{kind} v3, v1, s[4:5] offset:{shift}
  v_mov_b32 v4, 1
  global_atomic_add v2, v4, s[6:7]
  s_waitcnt vmcnt(0)
"""


def watched(text: str, grid: int, sizes: tuple[int, int], arch: str = "mi300x", threads: int | None = None) -> WatchedLaunch:
    device, watching = Device(arch, threads=threads), Watching()
    buffers = [device.upload(np.zeros(size, np.uint8)) for size in sizes]
    watching.launch(loaded_kernel(device, text, "buffer", "buffer"), grid=grid, block=64, args=buffers)
    (one,) = watching.launches
    return one


@pytest.mark.parametrize("kind, width", [("ubyte", 1), ("ushort", 2), ("dword", 4), ("dwordx3", 12), ("dwordx4", 16)])
@pytest.mark.parametrize("stride, shift, mask", [(16, 0, -1), (4, 12, -1), (20, 4, 0x5555), (0, 60, 7)])
def test_bytes_are_those_of_the_addresses(kind: str, width: int, stride: int, shift: int, mask: int) -> None:
    size = 64 * stride + shift + width + 9
    text = READS.format(exec=mask, stride=stride, shift=shift, kind=kind).replace("v3,", f"v[8:{7 + -(-width // 4)}],")
    one = watched(text, 3, (size, 256), threads=2)
    times = np.zeros(size, np.int64)
    lanes = [lane for lane in range(64) if mask >> min(lane, 62) & 1]
    for lane in lanes:
        times[stride * lane + shift : stride * lane + shift + width] += 3
    read, added = sorted((touched for touched in one.touched if touched.nbytes in (size, 256)), key=lambda t: t.address)
    np.testing.assert_array_equal(read.times, times)
    np.testing.assert_array_equal(np.unpackbits(read.read, count=size, bitorder="little"), times > 0)
    assert added.times is not None and added.times.tolist() == [3 * (byte // 4 in lanes) for byte in range(256)]
    kernel = launches_document([one])["kernels"][0]
    columns = kernel["code"]["columns"]
    by_mnemonic = {text.split()[0]: count for text, count in zip(columns["text"], columns["distinct"], strict=True) if count}
    assert by_mnemonic == {f"global_load_{kind}": (times > 0).sum(), "global_atomic_add": 4 * len(lanes)}
    picture = next(one for one in kernel["traffic"] if one["bytes"] == size)
    assert (picture["asked"], picture["again"], picture["most"]) == (times.sum(), (times > 1).sum(), times.max())
    assert picture["clipped"] == picture["wrong"] == []


def test_a_gemms_instructions_touch_what_the_launch_does() -> None:
    """A byte of A is read once for each tile of C in a row; accesses beyond A are clipped."""
    tree = TiledComputation(100, 72, 48, target="mi300x", dtype="f16")
    device, watching = Device("mi300x"), Watching()
    arrays = [np.ones((100, 48), np.float16), np.ones((48, 72), np.float16), np.zeros((100, 72), np.float32)]
    buffers = [device.upload(array) for array in arrays]
    for entry, call in asm.Prepared(asm.emit(tree), device).calls(*buffers):
        watching.launch(entry, **call)
    (one,) = watching.launches
    np.testing.assert_array_equal(buffers[2].download(), 48)
    assert one.run is not None and one.touches is not None
    by_address = {touched.address: touched for touched in one.touched}
    across, down = -(-72 // tree.plan.tile_n), -(-100 // tree.plan.tile_m)
    a, b, c = (by_address[buffer.address] for buffer in buffers)
    assert a.times is not None and b.times is not None and c.times is None
    assert set(a.times.tolist()) == {across} and set(b.times.tolist()) == {down}
    traffic = {picture["name"]: picture for picture in launches_document([one])["kernels"][0]["traffic"]}
    assert set(traffic["A"]["times"]) == {10 * across} and "times" not in traffic["C"]
    assert traffic["A"]["clipped"] and traffic["C"]["clipped"]
    code = {offset: text for offset, _, text in one.rows}
    stores = sum(count for offset, count in one.touches.distinct.items() if "store" in code[offset])
    assert stores >= one.run.counters["unique_write_bytes"] == 100 * 72 * 4
    assert max(one.touches.distinct.values()) <= sum(array.nbytes for array in arrays)


def test_more_reads_than_are_counted_stay_at_the_most() -> None:
    text = READS.format(exec=-1, stride=0, shift=0, kind="dword")
    one = watched(text, 1100, (64, 256))
    times = next(touched.times for touched in one.touched if touched.nbytes == 64)
    assert times is not None and times.tolist() == [65535] * 4 + [0] * 60


def test_a_launch_that_fails_shows_what_it_touched() -> None:
    """A load is inside the buffer, its successor is not."""
    text = READS.format(exec=-1, stride=4, shift=0, kind="dword") + "  global_load_dword v5, v1, s[4:5] offset:4000\n"
    device, watching = Device("mi300x"), Watching()
    buffers = [device.upload(np.zeros(256, np.uint8)) for _ in range(2)]
    with pytest.raises(MemoryFault):
        watching.launch(loaded_kernel(device, text, "buffer", "buffer"), grid=1, block=64, args=buffers)
    kernel = launches_document(watching.launches)["kernels"][0]
    assert "MemoryFault" in kernel["error"] and [picture["read"] for picture in kernel["traffic"]] == [256, 256]


def test_a_finding_stands_at_its_buffer(tmp_path: Path) -> None:
    """Checked mode: a pointer to the first buffer reaches into the second one."""
    text = READS.format(exec=-1, stride=4, shift=0, kind="dword") + "  global_load_dword v5, v1, s[4:5] offset:4000\n"
    device, watching = Device("mi300x", check=True), Watching()
    buffers = [device.upload(np.zeros(256, np.uint32)) for _ in range(2)]
    with pytest.raises(MemoryFault):
        watching.launch(loaded_kernel(device, text, "buffer", "buffer"), grid=1, block=64, args=buffers)
    first, *_ = launches_document(watching.launches)["kernels"][0]["traffic"]
    ((row, said),) = first["wrong"]
    assert said.startswith("out-of-bounds") and watching.launches[0].rows[row][2].endswith("offset:4000")


@needs_browser
def test_the_traffic_of_a_gemm(gemm: Path, opened: Opened) -> None:
    a = next(picture for picture in read_document(str(gemm))["kernels"][0]["traffic"] if picture["name"] == "A")
    opened.open(gemm, "view=traffic")
    text = opened.page.inner_text("figure >> nth=0")
    assert f"{a['asked'] / a['read']:#.4g} times each" in text and "never touched" in text and "out of range" in text
    opened.page.select_option("main select", "times")
    assert "read once" in opened.page.inner_text("main")
    opened.page.focus("main canvas >> nth=0")
    opened.page.keyboard.press("ArrowRight")
    assert f"100 % read, {a['times'][1] / 10:g} times" in opened.page.inner_text("figure >> nth=0")
    opened.page.click("figure >> nth=0 >> button.link >> nth=0")
    assert f"row={a['clipped'][0][0]}" in opened.fragment and "view=source" in opened.fragment
    opened.page.select_option("main select >> nth=0", "distinct")
    assert "heat=distinct" in opened.fragment and opened.errors == []


def test_a_launch_too_long_to_be_counted_is_shown_without_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simgpu.tools.page.watching.MOST_INSTRUCTIONS", 20)
    one = watched(READS.format(exec=-1, stride=4, kind="dword", shift=0), 8, (4096, 4096))
    assert one.touches is None and "more than 20 instructions" in one.uncounted
    assert one.run is not None and one.touched[0].times is None
    (kernel,) = launches_document([one])["kernels"]
    assert "distinct" not in kernel["code"]
