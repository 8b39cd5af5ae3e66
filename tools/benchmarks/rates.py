"""Nanoseconds per wave-instruction, by class; marks slow instructions.

    python -m simgpu.tools.benchmarks.rates [--target mi300x] [--only TEXT] [--json]

Each instruction runs 16 times in a loop, on one wave, with all lanes, and with ordinary numbers in its registers; the time is
CPU time of one thread, without the loop. Instructions that the target lacks are left out. `x` is the time over the median of
the class.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from simgpu import Device, asm
from simgpu.hardware.errors import ToolchainError
from simgpu.tools.benchmarks.engine import Bench, loop_text, prepare, text_of
from simgpu.tools.shared.console import print_json, progress, show, table

TIMES = 16  # repeats of an instruction in the loop's body
LOOPS = 40_000
REPEATS = 3
NBYTES = 1 << 16
SLOW = 10  # multiple of the class's median from which a row is marked

# v0 is the lane; v35, v1, v33, v36 and v32 are 2, 4, 8, 12 and 16 times that, v34 is 0; v[2:3] is the lane's address in x, s[4:5]
# x's, s[6:7] y's and s[8:9] z's; v4 to v31 hold 1.0; m0 is 0.
CLASSES: dict[str, tuple[str, ...]] = {
    "VALU, 32 bits": (
        "v_mov_b32 v40, v4", "v_add_f32 v40, v4, v5", "v_fma_f32 v40, v4, v5, v6", "v_add_u32 v40, v4, v5",
        "v_mul_lo_u32 v40, v4, v5", "v_mul_hi_u32 v40, v4, v5", "v_lshl_add_u32 v40, v4, 3, v5", "v_perm_b32 v40, v4, v5, v34",
        "v_perm_b32 v40, v4, v5, s21", "v_bfe_u32 v40, v4, 3, 7", "v_cndmask_b32 v40, v4, v5, vcc", "v_cmp_lt_f32 vcc, v4, v5",
        "v_cmp_class_f32 vcc, v4, v5", "v_med3_f32 v40, v4, v5, v6", "v_max_f32 v40, v4, v5", "v_dot4_i32_i8 v40, v4, v5, v6",
        "v_dot2_f32_f16 v40, v4, v5, v6", "v_sad_u8 v40, v4, v5, v6", "v_bcnt_u32_b32 v40, v4, v5",
        "v_mbcnt_lo_u32_b32 v40, v4, v5", "v_ffbh_u32 v40, v4", "v_bfrev_b32 v40, v4", "v_div_scale_f32 v40, vcc, v4, v5, v4",
        "v_div_fmas_f32 v40, v4, v5, v6", "v_div_fixup_f32 v40, v4, v5, v6", "v_ldexp_f32 v40, v4, v34",
        "v_add_co_u32 v40, vcc, v4, v5", "v_addc_co_u32 v40, vcc, v4, v5, vcc", "v_accvgpr_write_b32 a0, v4",
        "v_accvgpr_read_b32 v40, a0", "v_readfirstlane_b32 s20, v4", "v_readlane_b32 s20, v4, 5", "v_writelane_b32 v40, s20, 5",
        "v_bitop3_b32 v40, v4, v5, v6 bitop3:0x5a",
    ),
    "VALU, 16 bits and packed": (
        "v_add_f16 v40, v4, v5", "v_fma_f16 v40, v4, v5, v6", "v_mul_f16 v40, v4, v5", "v_pk_add_f16 v40, v4, v5",
        "v_pk_fma_f16 v40, v4, v5, v6", "v_pk_mul_f16 v40, v4, v5", "v_pk_max_f16 v40, v4, v5", "v_pk_add_u16 v40, v4, v5",
        "v_pk_mad_i16 v40, v4, v5, v6", "v_pk_lshlrev_b16 v40, v4, v5", "v_pk_fma_f32 v[40:41], v[4:5], v[6:7], v[8:9]",
        "v_pk_add_f32 v[40:41], v[4:5], v[6:7]", "v_pk_mul_f32 v[40:41], v[4:5], v[6:7]",
        "v_fma_mix_f32 v40, v4, v5, v6", "v_fma_mixlo_f16 v40, v4, v5, v6", "v_add_u16 v40, v4, v5",
        "v_mad_u16 v40, v4, v5, v6", "v_cmp_lt_f16 vcc, v4, v5",
    ),
    "VALU, 64 bits": (
        "v_add_f64 v[40:41], v[4:5], v[6:7]", "v_mul_f64 v[40:41], v[4:5], v[6:7]",
        "v_fma_f64 v[40:41], v[4:5], v[6:7], v[8:9]", "v_max_f64 v[40:41], v[4:5], v[6:7]", "v_lshlrev_b64 v[40:41], 3, v[4:5]",
        "v_lshl_add_u64 v[40:41], v[4:5], 3, v[6:7]", "v_mad_u64_u32 v[40:41], vcc, v4, v5, v[6:7]",
        "v_cmp_lt_f64 vcc, v[4:5], v[6:7]", "v_cmp_lt_u64 vcc, v[4:5], v[6:7]",
        "v_div_fmas_f64 v[40:41], v[4:5], v[6:7], v[8:9]", "v_div_scale_f64 v[40:41], vcc, v[4:5], v[6:7], v[4:5]",
        "v_div_fixup_f64 v[40:41], v[4:5], v[6:7], v[8:9]", "v_ldexp_f64 v[40:41], v[4:5], v34", "v_rndne_f64 v[40:41], v[4:5]",
        "v_mov_b64 v[40:41], v[4:5]",
    ),
    "transcendental": (
        "v_exp_f32 v40, v4", "v_log_f32 v40, v4", "v_rcp_f32 v40, v4", "v_rsq_f32 v40, v4", "v_sqrt_f32 v40, v4",
        "v_sin_f32 v40, v4", "v_cos_f32 v40, v4", "v_exp_f16 v40, v4", "v_log_f16 v40, v4", "v_rcp_f16 v40, v4",
        "v_sqrt_f16 v40, v4", "v_rcp_f64 v[40:41], v[4:5]", "v_rsq_f64 v[40:41], v[4:5]", "v_sqrt_f64 v[40:41], v[4:5]",
        "v_rcp_iflag_f32 v40, v4", "v_prng_b32 v40, v4",
    ),
    "conversions": (
        "v_cvt_f32_u32 v40, v4", "v_cvt_u32_f32 v40, v4", "v_cvt_i32_f32 v40, v4", "v_cvt_f16_f32 v40, v4",
        "v_cvt_f32_f16 v40, v4", "v_cvt_pkrtz_f16_f32 v40, v4, v5", "v_cvt_f64_f32 v[40:41], v4", "v_cvt_f32_f64 v40, v[4:5]",
        "v_cvt_i32_f64 v40, v[4:5]", "v_cvt_f32_ubyte2 v40, v4", "v_cvt_pk_u8_f32 v40, v4, v5, v6",
        "v_cvt_pk_fp8_f32 v40, v4, v5", "v_cvt_pk_bf8_f32 v40, v4, v5", "v_cvt_sr_fp8_f32 v40, v4, v5", "v_cvt_f32_fp8 v40, v4",
        "v_cvt_pk_f32_fp8 v[40:41], v4", "v_cvt_pk_bf16_f32 v40, v4, v5", "v_cvt_sr_bf16_f32 v40, v4, v5",
        "v_cvt_scalef32_pk_f32_fp4 v[40:41], v4, v5", "v_cvt_scalef32_pk_fp4_f32 v40, v4, v5, v6",
        "v_cvt_scalef32_pk_f16_fp8 v40, v4, v5", "v_cvt_scalef32_pk_fp8_f16 v40, v4, v5",
        "v_cvt_scalef32_pk32_f32_fp6 v[40:71], v[4:9], v10", "v_cvt_scalef32_2xpk16_fp6_f32 v[40:45], v[4:19], v[12:27], v28",
        "v_frexp_mant_f32 v40, v4", "v_frexp_exp_i32_f32 v40, v4", "v_fract_f32 v40, v4", "v_rndne_f32 v40, v4",
        "v_floor_f32 v40, v4",
    ),
    "lanes": (
        "v_mov_b32_dpp v40, v4 row_shr:1 row_mask:0xf bank_mask:0xf",
        "v_mov_b32_dpp v40, v4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        "v_add_f32_dpp v40, v4, v5 row_bcast:15 row_mask:0xa bank_mask:0xf",
        "v_mov_b32_sdwa v40, v4 dst_sel:BYTE_1 src0_sel:WORD_1",
        "v_add_u32_sdwa v40, v4, v5 dst_sel:DWORD src0_sel:BYTE_1 src1_sel:WORD_1", "ds_bpermute_b32 v40, v1, v4",
        "ds_permute_b32 v40, v1, v4", "ds_swizzle_b32 v40, v4 offset:swizzle(SWAP,16)", "v_permlane32_swap_b32 v40, v41",
        "v_permlane16_swap_b32 v40, v41",
    ),
    "SALU": (
        "s_mov_b32 s20, s21", "s_add_u32 s20, s21, s22", "s_mul_i32 s20, s21, s22", "s_lshl_b64 s[20:21], s[22:23], 3",
        "s_bcnt1_i32_b64 s20, s[22:23]", "s_ff1_i32_b64 s20, s[22:23]", "s_and_saveexec_b64 s[20:21], exec",
        "s_cmp_lt_i32 s20, s21", "s_bfe_u32 s20, s21, 0x50003", "s_cselect_b32 s20, s21, s22", "s_nop 0",
        "s_waitcnt lgkmcnt(0)", "s_load_dword s20, s[4:5], 0x0", "s_load_dwordx16 s[16:31], s[4:5], 0x0",
        "s_mul_hi_u32 s20, s21, s22", "s_bitreplicate_b64_b32 s[20:21], s22", "s_memtime s[20:21]",
    ),
    "LDS": (
        "ds_read_b32 v40, v1", "ds_read_b64 v[40:41], v33", "ds_read_b128 v[40:43], v32", "ds_write_b32 v1, v4",
        "ds_write_b64 v33, v[4:5]", "ds_write_b128 v32, v[4:7]", "ds_read_u8 v40, v0", "ds_read_u16 v40, v35",
        "ds_read_u16 v40, v1", "ds_read_u16_d16 v40, v35", "ds_write_b8 v0, v4", "ds_write_b16 v35, v4",
        "ds_read2_b32 v[40:41], v1 offset1:64", "ds_read2st64_b64 v[40:43], v33 offset1:1", "ds_read_b96 v[40:42], v36",
        "ds_add_u32 v1, v4", "ds_add_f32 v1, v4", "ds_add_rtn_u32 v40, v1, v4", "ds_pk_add_f16 v1, v4",
        "ds_max_f64 v33, v[4:5]", "ds_read_b64_tr_b16 v[40:41], v33", "ds_read_b64_tr_b8 v[40:41], v33",
    ),
    "global loads and stores": (
        "global_load_dword v40, v1, s[4:5]", "global_load_dwordx2 v[40:41], v33, s[4:5]",
        "global_load_dwordx4 v[40:43], v32, s[4:5]", "global_load_dwordx4 v[40:43], v[2:3], off",
        "global_load_ubyte v40, v0, s[4:5]", "global_load_ushort v40, v1, s[4:5]", "global_load_short_d16 v40, v35, s[4:5]",
        "global_load_dwordx3 v[40:42], v36, s[4:5]", "global_store_dword v1, v4, s[8:9]",
        "global_store_dwordx4 v32, v[4:7], s[8:9]", "global_store_short v35, v4, s[8:9]", "global_store_byte v0, v4, s[8:9]",
        "flat_load_dwordx4 v[40:43], v[2:3]", "buffer_load_dword v40, v1, s[12:15], 0 offen",
        "buffer_load_dwordx4 v[40:43], v32, s[12:15], 0 offen", "buffer_store_dword v4, v1, s[12:15], 0 offen",
        "buffer_load_ushort v40, v35, s[12:15], 0 offen", "buffer_load_format_x v40, v1, s[12:15], 0 offen",
        "buffer_load_format_xyzw v[40:43], v32, s[12:15], 0 offen",
        "tbuffer_load_format_x v40, v1, s[12:15], 0 format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT] offen",
        "buffer_load_dword v1, s[12:15], 0 offen lds", "global_load_lds_dword v[2:3], off",
        "global_load_lds_dwordx4 v[2:3], off",
    ),
    "atomics": (
        "global_atomic_add v1, v4, s[8:9]", "global_atomic_add v40, v1, v4, s[8:9] glc",
        "global_atomic_add v40, v1, v4, s[8:9] sc0", "global_atomic_add_f32 v1, v4, s[8:9]",
        "global_atomic_pk_add_f16 v1, v4, s[8:9]", "global_atomic_add_f64 v33, v[4:5], s[8:9]",
        "global_atomic_umax v1, v4, s[8:9]", "global_atomic_cmpswap v1, v[4:5], s[8:9]",
        "global_atomic_add_x2 v33, v[4:5], s[8:9]", "global_atomic_pk_add_bf16 v1, v4, s[8:9]",
        "global_atomic_add v34, v4, s[8:9]",
    ),
}  # fmt: skip

BEFORE = """  v_and_b32 v0, 63, v0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v33, 3, v0
  v_lshlrev_b32 v32, 4, v0
  v_mov_b32 v34, 0
  v_lshlrev_b32 v35, 1, v0
  v_mul_u32_u24 v36, 12, v0
  v_mov_b32 v3, s5
  v_add_co_u32 v2, vcc, s4, v32
  v_addc_co_u32 v3, vcc, 0, v3, vcc
""" + "".join(f"  v_mov_b32 v{register}, 0x3f800000\n" for register in range(4, 32)) + """  s_mov_b32 m0, 0
  s_mov_b64 s[12:13], s[8:9]
  s_mov_b32 s14, 0x10000
  s_mov_b32 s15, 0x00027000
  s_mov_b32 s20, 5
  s_mov_b32 s21, 7
  s_mov_b32 s22, 9"""  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """An instruction's time."""

    line: str
    ns: float
    over: float  # in medians of its class


def rates(target: str, only: str = "") -> dict[str, list[Rate]]:
    """Returns the target's instructions by class, the slowest first."""
    gpu = Device(target, threads=1)
    empty = _ns(gpu, "") or 0.0
    found: dict[str, list[Rate]] = {}
    for name, lines in CLASSES.items():
        times = {}
        for line in lines:
            if only not in line and only not in name:
                continue
            with progress(f"{gpu.arch} {line}"):
                took = _ns(gpu, line)
            if took is not None:
                times[line] = max(took - empty, 0.0) / TIMES
        if times:
            median = statistics.median(times.values())
            made = [Rate(line, ns, ns / median if median else 1.0) for line, ns in times.items()]
            found[name] = sorted(made, key=lambda rate: -rate.ns)
    return found


def _ns(gpu: Device, line: str) -> float | None:
    """Times one pass of the loop's body; None if the target lacks the instruction."""
    body = loop_text("\n".join([f"  {line}"] * TIMES) if line else "", before=BEFORE)
    bench = Bench("rate", line, body, 1, LOOPS, NBYTES, workgroup=64, lds=4096, vgprs=96, agprs=4)
    try:
        asm.assemble(text_of(bench, gpu.arch), gpu.arch)
    except ToolchainError:
        return None
    made = prepare(bench, gpu)
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        made.launch()
        best = min(best, time.thread_time() - began)
    made.free()
    return best / LOOPS * 1e9


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--only", default="", help="instructions or classes that contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    found = rates(options.target, options.only)
    if options.json:
        print_json({name: [vars(rate) for rate in of_class] for name, of_class in found.items()})
        return 0
    body: list[tuple[Any, ...]] = [
        (name, rate.line, round(rate.ns, 1), f"{rate.over:.1f}", "slow" if rate.over > SLOW else "")
        for name, of_class in found.items()
        for rate in of_class
    ]
    columns = ("class", "instruction", "ns", "x", "")
    show(table(f"Nanoseconds a wave-instruction, {options.target}, one thread", columns, body, left=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
