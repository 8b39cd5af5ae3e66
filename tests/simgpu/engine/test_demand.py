"""Matrix instructions whose results reach only stored data, found by the code, in kernels of a few lines."""

from __future__ import annotations

import pytest

from simgpu import Device
from simgpu.engine.demand import Demand, demand_of
from tests.support.kernels import loaded_kernel

PRODUCT = "v_mfma_f32_32x32x1f32 a[0:31], v1, v2, a[0:31]\n"
TO_VGPR = "v_accvgpr_read_b32 v4, a0\n"
STORE = "global_store_dword v0, v4, s[4:5]\n"
LOAD = "global_load_dword v5, v4, s[4:5]\n"
HALF_OF_THE_LANES, ALL_LANES = "s_mov_b64 exec, 0xff\n", "s_mov_b64 exec, -1\n"

NEEDED = {
    "a branch on a lane's value": TO_VGPR + "v_readfirstlane_b32 s6, v4\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc1 end\nend:\n",
    "a branch on a comparison": TO_VGPR + "v_cmp_gt_f32 vcc, 0, v4\ns_cbranch_vccz end\nend:\n",
    "an address": TO_VGPR + "v_cvt_u32_f32 v4, v4\n" + LOAD,
    "an address of a store": TO_VGPR + "global_store_dword v4, v0, s[4:5]\n",
    "an address of LDS": TO_VGPR + "ds_read_b32 v5, v4\n",
    "EXEC": TO_VGPR + "v_cmpx_gt_f32 vcc, 0, v4\n" + STORE,
    "EXEC by a mask": TO_VGPR + "v_cmp_gt_f32 s[6:7], 0, v4\ns_and_b64 exec, exec, s[6:7]\n" + STORE,
    "an address from LDS": TO_VGPR + "ds_write_b32 v0, v4\nds_read_b32 v4, v0\ns_waitcnt lgkmcnt(0)\n" + LOAD,
    "an address from another lane": TO_VGPR + "v_mov_b32_dpp v4, v4 row_shr:1 row_mask:0xf bank_mask:0xf\n" + LOAD,
    "an address by permutation": TO_VGPR + "ds_bpermute_b32 v4, v0, v4\ns_waitcnt lgkmcnt(0)\n" + LOAD,
    "lanes that a move leaves": TO_VGPR + HALF_OF_THE_LANES + "v_mov_b32 v4, 0\n" + ALL_LANES + LOAD,
    "a part that a move leaves": TO_VGPR + "v_mov_b32_sdwa v4, v0 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE\n" + LOAD,
    "half of VCC": TO_VGPR + "v_cmp_gt_f32 vcc, 0, v4\ns_mov_b32 vcc_lo, 0\ns_cbranch_vccz end\nend:\n",
    "lanes that a move leaves, after all had another value": (
        ALL_LANES + TO_VGPR + HALF_OF_THE_LANES + "v_mov_b32 v4, 0\n" + ALL_LANES + LOAD
    ),
    "the next pass of a loop": "again:\n" + LOAD + TO_VGPR + "s_sub_u32 s6, s6, 1\ns_cbranch_scc0 again\n",
    "code that cannot be followed": "s_getpc_b64 s[8:9]\ns_setpc_b64 s[8:9]\n",
    "registers that are data": TO_VGPR + "s_movrels_b32 s6, s7\n" + STORE,
}
UNNEEDED = {
    "stored": TO_VGPR + STORE,
    "selected": TO_VGPR + "v_cmp_gt_f32 vcc, 0, v4\nv_cndmask_b32 v4, 0, v4, vcc\n" + STORE,
    "through LDS": TO_VGPR + "ds_write_b32 v0, v4\nds_read_b32 v4, v0\ns_waitcnt lgkmcnt(0)\n" + STORE,
    "added by an atomic": TO_VGPR + "global_atomic_add_f32 v0, v4, s[4:5]\n",
    "overwritten": TO_VGPR + "v_mov_b32 v4, 0\n" + LOAD,
    "overwritten in all lanes": TO_VGPR + ALL_LANES + "v_mov_b32 v4, 0\n" + HALF_OF_THE_LANES + LOAD,
    "overwritten in all lanes of the workgroup": TO_VGPR + "v_mov_b32 v4, 0\n" + ALL_LANES + LOAD,
    "another comparison decides": TO_VGPR + "v_cmp_gt_f32 vcc, 0, v4\nv_cmp_gt_f32 vcc, 0, v0\ns_cbranch_vccz end\nend:\n",
}


def demand(text: str) -> Demand:
    kernel = loaded_kernel(Device("gfx90a", threads=1), PRODUCT + text, "buffer")
    program = kernel.module.program(kernel.info, 0, False)
    entry = (kernel.info.start + kernel.module.bias - program.base) // 4
    return demand_of(program.code, program._decode, entry)


@pytest.mark.parametrize("text", NEEDED.values(), ids=NEEDED)
def test_what_decides_something_is_needed(text: str) -> None:
    assert demand(text) == Demand()


@pytest.mark.parametrize("text", UNNEEDED.values(), ids=UNNEEDED)
def test_what_only_reaches_memory_is_not(text: str) -> None:
    assert len(demand(text).unneeded) == 1


def test_a_store_of_other_data_is_certain() -> None:
    """A flag's value is known, whatever its register held before; under another EXEC some lanes may keep that."""
    flag = TO_VGPR + STORE + HALF_OF_THE_LANES + "v_mov_b32 v4, 1\n" + STORE
    assert len(demand(flag).doubtful) == 1
    assert len(demand(flag + ALL_LANES + STORE).doubtful) == 2


def test_a_move_at_the_entry_leaves_lanes_outside_of_the_workgroup() -> None:
    """A matrix instruction writes these, too. The first one, whose result is not read, is left out."""
    product = PRODUCT.replace("a[0:31]", "v[32:63]")
    assert len(demand(product + "v_mov_b32 v33, 0\n" + ALL_LANES + LOAD.replace("v4", "v33")).unneeded) == 1
    assert len(demand(product + "v_mov_b32 v33, 0\n" + LOAD.replace("v4", "v33")).unneeded) == 2


def test_an_epilogue_under_a_mask_makes_no_load_decide() -> None:
    """Registers of fragments become addresses in a loop whose passes begin with all lanes: no earlier load reaches these."""
    text = LOAD.replace("v5, v4", "v6, v0") + TO_VGPR + STORE + (
        "s_waitcnt vmcnt(0)\nv_lshlrev_b32 v6, 2, v0\nagain:\n" + HALF_OF_THE_LANES + "global_store_dword v6, v4, s[4:5]\n"
        + ALL_LANES + "v_add_u32 v6, 64, v6\ns_sub_u32 s6, s6, 1\ns_cbranch_scc0 again\n"
    )  # fmt: skip
    assert demand(text).unneeded and not demand(text).deciding


def test_loads_that_decide_are_named() -> None:
    found = demand(TO_VGPR + STORE + LOAD.replace("v4", "v0") + "s_waitcnt vmcnt(0)\nglobal_load_dword v6, v5, s[4:5]\n")
    assert len(found.unneeded) == len(found.doubtful) == len(found.deciding) == 1
