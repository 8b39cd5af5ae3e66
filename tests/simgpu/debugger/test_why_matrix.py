"""`why` through a matrix instruction of each kind (sparse, scaled, integer, broadcast), against flips of its operands' bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

import simgpu
from simgpu.debugger.flow.nodes import leaves
from simgpu.debugger.flow.why import Why
from tests.support.exhaustive import one_in
from tests.support.kernels import loaded_kernel

# Registers of A, B, the third operand (index or A's scale), the fourth (B's scale) and C, lane after lane in buffers.
KINDS = {
    "smfmac f16": ("gfx942", (2, 4, 1, 1, 4), "v_smfmac_f32_16x16x32_f16 v[40:43], v[8:9], v[16:19], v24 cbsz:1 abid:1", "f2"),
    "smfmac i8": ("gfx942", (2, 4, 1, 1, 4), "v_smfmac_i32_16x16x64_i8 v[40:43], v[8:9], v[16:19], v24", "i1"),
    "mfma i8": ("gfx90a", (1, 1, 1, 1, 4), "v_mfma_i32_16x16x16i8 v[40:43], v8, v16, v[40:43]", "i1"),
    "broadcast": ("gfx90a", (1, 1, 1, 1, 16), "v_mfma_f32_16x16x1f32 v[40:55], v8, v16, v[40:55] cbsz:2 abid:1", "f4"),
    "scaled": ("gfx950", (8, 8, 1, 1, 4), "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[8:15], v[16:23], v[40:43], v24, v32 "
               "op_sel:[1,0] op_sel_hi:[0,1]", "f8"),
    "fp6": ("gfx950", (6, 6, 1, 1, 4), "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[8:13], v[16:21], v[40:43], v24, v32 "
            "op_sel_hi:[0,0] cbsz:2 blgp:2", "f6"),
}  # fmt: skip
FIRST = (8, 16, 24, 32, 40)
FLIPS = (0x40404040, 0x10101010, 0x01010101, 0x80808080, 0x2A951545, 0x04040404, 0xFFFFFFFF)


def operands(kind: str, counts: tuple[int, ...]) -> list[np.ndarray]:
    """Draws random dwords of the type, index fields, scales around 1, and C."""
    rng = np.random.default_rng(len(kind) + sum(counts))

    def values(count: int) -> np.ndarray:
        if kind == "f2":
            return rng.uniform(1, 2, (64, 2 * count)).astype(np.float16).view(np.uint32)
        if kind == "f4":
            return rng.uniform(1, 2, (64, count)).astype(np.float32).view(np.uint32)
        low = {"f8": 0x38383838, "f6": 0}.get(kind, 0x01010101)  # codes without NaN, of like size
        return (rng.integers(0, 1 << 32, (64, count), dtype=np.uint32) & np.uint32(0x07070707)) + np.uint32(low)

    third = rng.integers(0x7E, 0x81, (64, 8), dtype=np.uint8).view(np.uint32)[:, :1]
    if kind in ("f2", "i1"):  # two different k of four in each field of four bits
        third = np.array([[sum(random.Random(lane * 8 + at).choice((4, 8, 12, 9, 13, 14)) << 4 * at for at in range(8))]
                          for lane in range(64)], np.uint32)  # fmt: skip
    fourth = rng.integers(0x7E, 0x81, (64, 4), dtype=np.uint8).view(np.uint32)
    return [values(counts[0]), values(counts[1]), third, fourth, np.zeros((64, counts[4]), np.uint32)]


@pytest.mark.parametrize("name", one_in(2, list(KINDS)))
def test_why_is_what_bit_flips_say(name: str) -> None:
    target, counts, instruction, kind = KINDS[name]
    lines = ["s_load_dwordx8 s[4:11], s[0:1], 0x0", "s_load_dwordx4 s[12:15], s[0:1], 0x20", "s_waitcnt lgkmcnt(0)"]
    for at, (count, first) in enumerate(zip(counts, FIRST, strict=True)):
        lines.append(f"v_mul_u32_u24 v1, {4 * count}, v0")
        for part in range(count):
            lines.append(f"global_load_dword v{first + part}, v1, s[{4 + 2 * at}:{5 + 2 * at}] offset:{4 * part}")
    lines += ["s_waitcnt vmcnt(0)", instruction, "s_nop 15", "s_nop 15"]
    for part in range(counts[4]):
        lines.append(f"global_store_dword v1, v{40 + part}, s[14:15] offset:{4 * part}")
    gpu = simgpu.Device(target, threads=1)
    given = operands(kind, counts)
    buffers = [gpu.upload(array) for array in (*given, given[4])]
    kernel = loaded_kernel(gpu, "\n".join([*lines, "s_endpgm"]), *["buffer"] * 6)

    def result() -> np.ndarray:
        kernel.launch(grid=1, args=buffers)
        return buffers[5].download(np.uint32, given[4].shape)

    usual = result()
    changes: dict[str, np.ndarray] = {}
    for at, array in enumerate(given):
        for index in np.ndindex(*array.shape):
            changed = np.zeros(usual.shape, bool)
            for bits in FLIPS if at < 4 else (0x40400000, 0x00003000):
                flipped = array.copy()
                flipped[index] ^= np.uint32(bits)
                buffers[at].write(flipped)
                changed |= result() != usual
            buffers[at].write(array)
            changes[f"a{at}[{index[0]},{index[1]}]"] = changed
    with simgpu.debug(kernel, grid=1, args=buffers) as debugger:
        why = Why(debugger)
        for element in random.Random(name).sample(list(np.ndindex(*usual.shape)), 3):
            root = why.memory(buffers[5].address + 4 * (element[0] * counts[4] + element[1]), 4)
            found = [leaf.text.partition(" byte ") for leaf in leaves(root) if leaf.kind == "memory"]
            named = {text for text, _, _ in found}
            if name == "scaled":  # the bytes that op_sel and op_sel_hi select
                assert {(text[:2], byte) for text, _, byte in found if text[:2] in ("a2", "a3")} == {("a2", "1"), ("a3", "2")}
            assert named == {text for text, changed in changes.items() if changed[element]}, element
