"""Objects that are launched, with the extents of their launches; paths are those of AITER's repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simgpu.tools.validation.shipped.attention import ForwardAttention
from simgpu.tools.validation.shipped.case import ShippedCase
from simgpu.tools.validation.shipped.gemm import MatrixProduct4
from simgpu.tools.validation.shipped.mla import Decode, PersistentDecode
from simgpu.tools.validation.shipped.moe import ExpertLayer

Make = Callable[[Path, str], ShippedCase]  # called with the object's file and its board
BOARDS = {"gfx942": "mi300x", "gfx950": "mi355x"}


class ShippedRow(NamedTuple):
    """An object and its launch."""

    path: str
    make: Make

    @property
    def board(self) -> str:
        return BOARDS[self.path.split("/")[1]]


MLA: dict[str, dict[str, Make]] = {
    "gfx942": {
        "mla_dec_stage1_bf16_a16w16_subQ16_mqa16": Decode(16, 16),
        "mla_dec_stage1_bf16_a16w16_subQ128_mqa128": Decode(128, 128),
        "MLA_A16W16_1TG_4W_32mx1_16nx1_Coex0_Msk1_QH16": Decode(32, 64),
        "MLA_A16W16_1TG_4W_64mx1_16nx1_Coex0_Msk1_QH16": Decode(64, 64),
        "mla_a16w16_qh8_qseqlen1_gqaratio8_v3": Decode(8, 8),
        "mla_a8w8_qh16_qseqlen1_gqaratio16": Decode(16, 128, "fp8"),
        "mla_a8w8_qh8_qseqlen1_gqaratio8_v1": Decode(8, 8, "fp8"),
        "mla_a8w8_qh128_m32x4_n16x2_msk1": Decode(128, 128, "fp8"),
    },
    "gfx950": {
        "mla_dec_stage1_bf16_a16w16_subQ16_mqa16": Decode(16, 16),
        "mla_dec_stage1_bf16_a16w16_subQ128_mqa128": Decode(128, 128),
        "MLA_A16W16_1TG_4W_16mx4_32nx1_Coex0_Msk1_QH16": Decode(32, 64),
        "MLA_A16W16_1TG_4W_64mx1_16nx1_Coex0_Msk1_QH16": Decode(64, 64),
        "mla_a16w16_qh64_qseqlen1_gqaratio64_v3": Decode(64, 64),
        "mla_a16w16_qh8_qseqlen1_gqaratio8_v3": Decode(8, 8),
        "mla_a16w16_qh32_qseqlen4_gqaratio32_ps": PersistentDecode(32, 4),
        "mla_a8w8_qh16_qseqlen1_gqaratio16": Decode(16, 128, "fp8"),
        "mla_a8w8_qh8_qseqlen1_gqaratio8_v3": Decode(8, 8, "fp8"),
        "mla_a8w8_qh128_m32x4_n16x2_msk1": Decode(128, 128, "fp8"),
    },
}
FP4 = {
    "192x256": MatrixProduct4(192, 256, 1024, (192, 256)),
    "224x256": MatrixProduct4(224, 256, 1024, (224, 256)),
    "256x256": MatrixProduct4(256, 256, 1024, (256, 256)),
    "KSplit_128x512": MatrixProduct4(128, 512, 2048, (128, 512), split=1),
}
ATTENTION = {
    "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_rtna": ForwardAttention(512, 2),
    "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna": ForwardAttention(512, 2, causal=True),
    "gfx950/fmha_v3_fwd/fwd_hd128_bf16": ForwardAttention(512, 2),
    "gfx950/fmha_v3_fwd/fwd_hd128_bf16_causal": ForwardAttention(512, 2, causal=True),
}
FP8_EXPERTS = "fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg"
TILES = (128, 192, 256, 512)
UNITS = {"gfx942": 304, "gfx950": 256}  # compute units: the workgroups of a persistent launch
# gfx950's 32x128 is wrong: its second product never writes its tiles to LDS. So is ps_32x256, whose 256 workgroups are no
# multiple of the three tiles of a block: block 85's first tile is added twice (docs/notes/2026-11-26-late-mode.md).
MOE = {f"{arch}/{FP8_EXPERTS}_32x{tile}": ExpertLayer(tile) for arch in UNITS for tile in TILES} | {
    f"{arch}/{FP8_EXPERTS}_ps_32x128": ExpertLayer(128, inner=256, persistent=units) for arch, units in UNITS.items()
} | {
    f"gfx950/{FP8_EXPERTS}_ps_32x256": ExpertLayer(256, tokens=600, inner=768, experts=128, top=1, persistent=UNITS["gfx950"]),
}  # fmt: skip
ROWS = (
    *(ShippedRow(f"hsa/{arch}/mla/{name}.co", step) for arch, steps in MLA.items() for name, step in steps.items()),
    *(ShippedRow(f"hsa/gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_{name}.co", make) for name, make in FP4.items()),
    *(ShippedRow(f"hsa/{name}.co", make) for name, make in (ATTENTION | MOE).items()),
)
