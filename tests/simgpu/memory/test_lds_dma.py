"""Loads of dwords straight to LDS against a numpy model, for any relation between the lanes' addresses."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware import target
from simgpu.hardware.errors import MemoryFault
from tests.simgpu.memory.test_direct import LANES, LDS, OLD, ROOM, SEEDS, TABLES, Case, distances, image, masks, u32
from tests.support.engine_kernel import Kernel
from tests.support.exhaustive import examples

M0, OFFSET, SOFFSET = 64, 8, 32
WIDTHS = {"": 1, "x4": 4}  # dwords; gfx950's 3 goes lane by lane
FORMS = {
    "buffer": f"buffer_load_dword{{}} v50, s[24:27], s28 offen offset:{OFFSET} lds",
    "saddr": f"global_load_lds_dword{{}} v50, s[30:31] offset:{OFFSET}",
    "addresses": f"global_load_lds_dword{{}} v[4:5], off offset:{OFFSET}",
}


@functools.cache
def kernel(width: str, m0: int = M0, form: str = "buffer") -> Kernel:
    """Runs the load twice, so that the second finds the first one's traces; LDS held OLD and the byte's place before."""
    count = WIDTHS[width]
    first = [f"v{20 + part}" for part in range(count)]
    place = [f"v_mul_u32_u24 v2, {4 * count}, v0", f"v_add_u32 v2, {M0 + OFFSET}, v2"]
    old = [line for part in range(count)
           for line in (f"v_add_u32 v3, {OLD + 4 * part:#x}, v2", f"ds_write_b32 v2, v3 offset:{4 * part}")]  # fmt: skip
    lines = [
        "global_load_dword v50, v60, s[4:5]", "s_load_dwordx2 s[10:11], s[4:5], 0x200",
        f"s_add_u32 s24, s4, {TABLES}", "s_addc_u32 s25, s5, 0", "s_and_b32 s25, s25, 0xffff", f"s_movk_i32 s26, {ROOM}",
        "s_mov_b32 s27, 0x20000", f"s_movk_i32 s28, {SOFFSET}", "s_add_u32 s30, s24, s28", "s_addc_u32 s31, s25, 0",
        "v_mov_b32 v5, s31", "s_waitcnt vmcnt(0)", "v_add_co_u32 v4, vcc, s30, v50", "v_addc_co_u32 v5, vcc, 0, v5, vcc",
        *place, *old, f"s_mov_b32 m0, {m0}",
        "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_mov_b64 exec, s[10:11]",
        *2 * [FORMS[form].format(width), "s_waitcnt vmcnt(0)"],
        "s_mov_b64 exec, -1", *(f"ds_read_b32 {name}, v2 offset:{4 * part}" for part, name in enumerate(first)),
        "s_waitcnt lgkmcnt(0)",
    ]  # fmt: skip
    return Kernel("gfx950", "\n".join(lines), first, group_segment_fixed_size=LDS)


def expected(width: str, data: np.ndarray, found: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Returns LDS's dwords by part and lane: a lane with a byte out of the buffer's range gets 0."""
    count = WIDTHS[width]
    places = M0 + OFFSET + 4 * count * np.arange(LANES)
    wanted = np.array([OLD + 4 * part + places for part in range(count)], u32)
    for lane in np.flatnonzero(active):
        at = TABLES + int(found[lane]) + OFFSET + SOFFSET
        fits = at - TABLES + 4 * count <= ROOM
        wanted[:, lane] = data[at : at + 4 * count].view(u32) if fits else 0
    return wanted


def compare(width: str, data: np.ndarray, found: np.ndarray, active: np.ndarray, form: str = "buffer") -> None:
    got = kernel(width, form=form).run(data)
    for name, row in zip(kernel(width, form=form).dump, expected(width, data, found, active), strict=True):
        np.testing.assert_array_equal(got[name], row, err_msg=name)
    inside = [at for at in found[active] + OFFSET + SOFFSET if at + 4 * WIDTHS[width] <= ROOM]
    touched = {int(at) + byte for at in inside for byte in range(4 * WIDTHS[width])}
    own = 256 + 8  # the tables
    assert got.run.counters["unique_read_bytes"] == own + len(touched)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", WIDTHS)
@settings(max_examples=examples(40))
@given(seed=SEEDS)
def test_patterns(width: str, form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = Case("", 4 * WIDTHS[width], "buffer", (OFFSET + SOFFSET,))
    found, active = distances(rng, case, ROOM), masks(rng)
    compare(width, image(rng, found, active), found, active, form)


@pytest.mark.parametrize("width", WIDTHS)
@settings(max_examples=examples(10))
@given(seed=SEEDS, all_lanes=st.booleans())
def test_lanes_out_of_range(width: str, seed: int, all_lanes: bool) -> None:
    rng = np.random.default_rng(seed)
    found, active = rng.permutation(LANES) * 16, np.ones(LANES, bool) if all_lanes else masks(rng)
    found[rng.permutation(LANES)[:3]] = ROOM, ROOM - OFFSET - SOFFSET - 4 * WIDTHS[width] + 4, 0x7FFFFFF0
    compare(width, image(rng, found, active), found, active)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_block_that_does_not_fit_lds(width: str, form: str) -> None:
    """Code uses the last place that the chip reserves, then one four bytes further: that is the last lane's fault."""
    found, active = np.arange(LANES) * 16, np.ones(LANES, bool)
    data = image(np.random.default_rng(1), found, active)
    last = target("mi355x").lds_allocation(LDS) - OFFSET - LANES * 4 * WIDTHS[width]
    kernel(width, last, form).run(data)
    with pytest.raises(MemoryFault, match="lane 63"):
        kernel(width, last + 4, form).run(data)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", WIDTHS)
def test_m0_above_all_addresses_means_no_load(width: str, form: str) -> None:
    """Triton's mark of a wave that loads nothing; an M0 below 0 is an address that was computed wrong."""
    found, active = np.arange(LANES) * 16, np.ones(LANES, bool)
    data = image(np.random.default_rng(1), found, active)
    got, nothing = kernel(width, 0x7FFFFFFF, form).run(data), expected(width, data, found, np.zeros(LANES, bool))
    assert all(np.array_equal(got[name], row) for name, row in zip(kernel(width, form=form).dump, nothing, strict=True))
    with pytest.raises(MemoryFault, match="LDS offset"):
        kernel(width, 0xFFFFFFF0, form).run(data)
