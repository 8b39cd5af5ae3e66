"""LDS accesses of a wave: addresses against the run's own count of conflicts, clocks against `lds_banks`, layouts against both."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import Device
from simgpu.hardware.timing_rules import lds_banks
from simgpu.tools.cli import main
from simgpu.tools.page.lds import INACTIVE, Layout, LdsAccess, accesses, buffers, lost_clocks
from simgpu.tools.page.watching import WatchedLaunch
from tests.support.browser import Opened, needs_browser
from tests.support.exhaustive import examples
from tests.support.kernels import loaded_kernel

TARGETS = ("gfx90a", "gfx942", "gfx950")
SIZES = (1, 2, 4, 8, 12, 16)


def addresses(rng: np.random.Generator, visits: int) -> np.ndarray:
    """Draws strided, swizzled and random addresses, some lanes inactive."""
    lane = np.arange(64)
    strided = 4 * lane * rng.integers(0, 40, (visits, 1)) + 4 * rng.integers(0, 9, (visits, 1))
    drawn = np.where(rng.random((visits, 1)) < 0.4, 4 * rng.integers(0, 300, (visits, 64)), strided)
    return np.where(rng.random((visits, 64)) < 0.1, INACTIVE, drawn)


@given(st.sampled_from(TARGETS), st.sampled_from(("read", "write")), st.sampled_from(SIZES), st.integers(0, 1 << 30))
@settings(max_examples=examples(60))
def test_clocks_are_those_of_the_banks(target: str, kind: str, nbytes: int, seed: int) -> None:
    drawn = addresses(np.random.default_rng(seed), 9)
    want = [lds_banks.conflicts(target, kind, nbytes, np.maximum(visit, 0), visit >= 0) for visit in drawn]
    assert lost_clocks(target, kind, nbytes, drawn).tolist() == want


def access(stride: int, nbytes: int = 4, kind: str = "read") -> LdsAccess:
    return LdsAccess(0, "", kind, nbytes, 0, stride * np.arange(64)[None])


@pytest.mark.parametrize("stride, nbytes", [(128, 4), (256, 8), (64, 16)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_suggestion_clears_and_nothing_smaller_does(target: str, stride: int, nbytes: int) -> None:
    (buffer,) = buffers([access(stride, nbytes)])
    assert buffer.lost_clocks(target) > 0
    found = buffer.suggest(target)
    assert found, "a column of a power of two is what paddings are for"
    for layout in found:
        assert buffer.lost_clocks(target, layout) == 0
    tried = list(buffer.layouts())
    for layout in found:
        smaller = [other for other in tried if bool(other.bits) == bool(layout.bits)]
        smaller = [
            other for other in smaller if (buffer.added_bytes(other), other.bits) < (buffer.added_bytes(layout), layout.bits)
        ]
        assert all(buffer.lost_clocks(target, other) for other in smaller)


LAYOUTS = (Layout(64, 4), Layout(128, 16), Layout(160, 16), Layout(64, 0, 2, 16), Layout(256, 0, 3, 8), Layout(128, 0, 2, 4))


@given(st.sampled_from(LAYOUTS), st.integers(0, 500))
def test_a_layout_moves_every_byte_to_a_place_of_its_own(layout: Layout, base: int) -> None:
    before = np.arange(base, base + 4096)
    after = layout.move(before, base)
    assert len(set(after.tolist())) == len(before)
    whole = before.reshape(-1, layout.unit) if layout.bits else before.reshape(-1, min(layout.row, 4))
    parts = after.reshape(whole.shape)
    assert (np.diff(parts, axis=1) == 1).all(), "what an access takes as one stays together"


def test_buffers_are_what_accesses_share() -> None:
    low, high = access(4), LdsAccess(4, "", "write", 4, 0, 1000 + 4 * np.arange(64)[None])
    across = LdsAccess(8, "", "read", 4, 0, np.where(np.arange(64) < 2, 990 + 8 * np.arange(64), INACTIVE)[None])
    assert [len(buffer.accesses) for buffer in buffers([low, high])] == [1, 1]
    assert [len(buffer.accesses) for buffer in buffers([low, high, across])] == [1, 2]


BODY = """
  v_lshlrev_b32 v1, {shift}, v0
  v_lshlrev_b32 v2, 3, v0
  v_mov_b32 v4, 1.0
  v_mov_b32 v5, 2.0
  ds_write_b32 v1, v4 offset:16
  ds_write2_b32 v2, v4, v5 offset0:1 offset1:2
  ds_write2st64_b32 v1, v4, v5 offset0:1 offset1:3
  v_cmp_lt_u32 vcc, 40, v0
  s_and_saveexec_b64 s[2:3], vcc
  ds_read_b64 v[6:7], v2 offset:8
  s_mov_b64 exec, s[2:3]
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s4, 2
again:
  ds_read_b128 v[8:11], v1
  s_waitcnt lgkmcnt(0)
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 again
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shift", [2, 4, 7])
def test_a_waves_accesses_lose_what_the_run_counts(target: str, shift: int) -> None:
    """Each access counts in the check, from the engine's addresses; the launch has one wave, so all are recorded."""
    device = Device(target, check="performance")
    kernel = loaded_kernel(device, BODY.format(shift=shift), group_segment_fixed_size=16384)
    call = {"grid": 1, "block": 64, "args": []}
    found = accesses(WatchedLaunch(kernel, call).look().visits)
    run = kernel.launch(**call)
    counted: dict[int, int] = {}
    for one in found:
        clocks = int(lost_clocks(target, one.kind, one.nbytes, one.addresses).sum())
        counted[one.offset] = counted.get(one.offset, 0) + clocks
    assert {offset: clocks for offset, clocks in counted.items() if clocks} == {o: c for o, c in run.lds_conflicts.items() if c}
    assert [one.part for one in found] == [0, 0, 1, 0, 1, 0, 0]
    assert len(found[-1].addresses) == 2 and (found[-2].addresses[0] >= 0).sum() == 23


def test_a_checked_devices_buffers_serve_the_wave_that_is_looked_at() -> None:
    """A separate device that shares the memory, without checks, runs the wave."""
    device = Device("mi300x", check=True)
    kernel = loaded_kernel(device, BODY.format(shift=4), "buffer", group_segment_fixed_size=16384)
    assert WatchedLaunch(kernel, {"grid": 1, "block": 64, "args": [device.zeros(64)]}).look().visits


MODEL = """([rules, cases]) => cases.map(([name, size, addresses, base, layout]) => {
  const moved = layout ? addresses.map((address) => simgpu.movedAddress(address, base, layout)) : addresses;
  return [simgpu.lostClocks(rules[name], size, moved), moved];
})"""


@needs_browser
@pytest.mark.parametrize("target", TARGETS)
def test_the_pages_banks_are_the_hardwares(target: str, gemm: Path, opened: Opened) -> None:
    """Random accesses of every size, in the present and other layouts: clocks by `lds_banks.conflicts`, addresses by
    `Layout.move`."""
    rng = np.random.default_rng(5)
    layouts = [None, Layout(128, 4), Layout(160, 16), Layout(64, 0, 2, 16), Layout(256, 8, 3, 4)]
    rules, cases, want = {}, [], []
    for kind in ("read", "write"):
        for nbytes in SIZES:
            rule = lds_banks.phases(target, kind, nbytes)
            rules[f"{kind}{nbytes}"] = {"banks": rule.banks, "phases": [list(phase) for phase in rule.phases]}
            for layout in layouts:
                drawn = addresses(rng, 4)
                moved = layout.move(drawn, 0) if layout else drawn
                for before, after in zip(drawn, moved, strict=True):
                    cases.append([f"{kind}{nbytes}", nbytes, before.tolist(), 0, layout.document() if layout else None])
                    want.append([lds_banks.conflicts(target, kind, nbytes, np.maximum(after, 0), after >= 0), after.tolist()])
    assert opened.open(gemm).run(MODEL, rules, cases) == want


@needs_browser
def test_sliders_and_suggestions_change_the_clocks(opened: Opened, tmp_path: Path) -> None:
    assert main(["museum", "padding-that-does-not-help", "--save", str(tmp_path)]) == 0
    file, page = tmp_path / "padding-that-does-not-help-before.s", tmp_path / "page.html"
    assert main(["exec", str(file), "--grid", "1", *["--arg", "zeros:f32:64"] * 2, "--html", str(page)]) == 0
    opened.open(page, "view=lds")
    lost = int(re.search(r"(\d+) clocks lost in the visits", opened.page.inner_text(".card")).group(1))
    assert lost > 0 and len(opened.page.query_selector_all(".bank.conflict")) > 0
    for suggestion in range(2):
        opened.page.click(f".suggest >> nth={suggestion}")
        assert ", 0 with the sliders" in opened.page.inner_text(".card")
        assert opened.page.query_selector_all(".bank.conflict") == []
        opened.page.click("text=As it is")
    opened.page.click("tr:has-text('ds_read_b128')")
    assert "ds_read_b128" in opened.page.inner_text(".banks h2") and "row=" in opened.fragment
    assert opened.errors == []
