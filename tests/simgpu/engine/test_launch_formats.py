"""Launching from every form of compilers' output: code object versions, bundles, preloaded arguments."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.hardware.code_object.bundle import BUNDLE_MAGIC
from tests.support.kernels import KernelText, assemble, source

LINES = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_load_dword s10, s[0:1], 0x8
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
v_add_u32 v2, s10, v1
global_store_dword v1, v2, s[8:9]
"""
ARGS = ("buffer", "i32", "hidden_global_offset_x:8", "hidden_none:8")


def launched(gpu: simgpu.Device, code: bytes) -> list[int]:
    out = gpu.alloc(256)
    gpu.load(code)["k"].launch(grid=1, args=[out, 7])
    return out.download(np.uint32).tolist()


# Version: metadata version and ELF ABI version (AMDGPUUsage, "Header" and "Code Object Metadata").
@pytest.mark.parametrize(("metadata", "abi"), [((1, 0), 1), ((1, 1), 2), ((1, 2), 3), ((1, 2), 4)], ids=["v3", "v4", "v5", "v6"])
@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_code_object_versions(target: str, metadata: tuple[int, int], abi: int) -> None:
    kernel = KernelText("k", LINES, ARGS)
    assemble(target, kernel)  # skips where there is no assembler
    text = source(target, kernel).replace("amdhsa.version: [1, 2]", f"amdhsa.version: {list(metadata)}")
    code = bytearray(toolchain.assemble(text, target))
    code[8] = abi
    assert launched(simgpu.Device(target), bytes(code)) == [7 + 4 * lane for lane in range(64)]


def test_a_bundle_launches_the_devices_entry() -> None:
    entries = [("host-x86_64-unknown-linux-gnu-", b"")]
    for target in ("gfx90a", "gfx942"):
        entries.append((f"hipv4-amdgcn-amd-amdhsa--{target}", assemble(target, KernelText("k", LINES, ARGS))))
    at, head, body = 32 + sum(24 + len(name) for name, _ in entries), BUNDLE_MAGIC + struct.pack("<Q", len(entries)), b""
    for name, code in entries:
        head += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name.encode()
        body += code
    for target in ("gfx90a", "gfx942"):
        assert launched(simgpu.Device(target), head + body) == [7 + 4 * lane for lane in range(64)]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(("offset", "length"), [(0, 3), (2, 1)])
def test_preloaded_arguments(target: str, offset: int, length: int) -> None:
    """Words from `offset` on follow the kernarg address in SGPRs; the first 256 bytes of code are skipped."""
    first = 2 - offset  # place of the third word, the number, after s[0:1]
    lines = f"""
    s_trap 2
    .p2align 8
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    v_and_b32 v1, 0xff, v1
    v_mov_b32 v2, s{2 + first}
    v_add_u32 v2, v2, v1
    v_add_u32 v2, s{2 + length}, v2
    global_store_dword v1, v2, s[8:9]
    """
    options = {"user_sgpr_kernarg_preload_length": length, "user_sgpr_kernarg_preload_offset": offset}
    code = assemble(target, KernelText("k", lines, ("buffer", "i32"), options))
    assert launched(simgpu.Device(target), code) == [7 + 4 * lane for lane in range(64)]
