"""Lean handlers of checked mode: usual cases run without a shadow, and an unusual one gets the whole handler when it occurs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.machine.jit import Compiler
from tests.support.engine_kernel import source

STORE = "\nglobal_store_dword v60, v4, s[6:7]"
USUAL = "v_mov_b32 v2, 3\ns_mov_b64 exec, 0xff\nv_mul_lo_u32 v4, v2, v2\ns_mov_b64 exec, -1\nv_mul_lo_u32 v4, v2, v2" + STORE
SPOILT = "v_mul_lo_u32 v4, v2, v2" + STORE


class Machine:
    """A device in checked mode whose compiler has compiled nothing."""

    def __init__(self) -> None:
        self.gpu = simgpu.Device("gfx90a", check=True, threads=1)
        self.gpu.compiler = Compiler()

    def launch(self, lines: str) -> tuple[list[str], np.ndarray]:
        """Returns the findings' kinds and the dwords that the kernel stored."""
        code = toolchain.assemble(source("gfx90a", lines, (), {}), "gfx90a")
        out = self.gpu.alloc(4096)
        run = self.gpu.load(code)["k"].launch(grid=1, block=64, args=[self.gpu.upload(np.arange(1024, dtype=np.uint32)), out])
        return [finding.kind for finding in run.findings], out.download(np.uint32, 64)

    def handlers(self, mnemonic: str) -> list[bool]:
        """Returns for each loaded handler of an instruction whether it is lean."""
        return sorted(key.endswith("|lean") for key, _ in self.gpu.compiler.code.values() if f"|{mnemonic}|" in key)


@pytest.mark.slow
def test_what_is_usual_needs_no_shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    machine = Machine()
    found, stored = machine.launch(USUAL)
    assert found == [] and (stored == 9).all()
    assert machine.handlers("v_mul_lo_u32") == [True]
    found, _ = machine.launch(SPOILT)
    assert found == ["uninitialized"]
    assert machine.handlers("v_mul_lo_u32") == [False, True]
    # A kept handler serves all cases and is used from then on.
    later = Machine()
    assert later.launch(USUAL)[0] == []
    assert later.handlers("v_mul_lo_u32") == [False]


@pytest.mark.slow
def test_a_buffer_that_is_raw_needs_no_other_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four dwords a lane: the lean handler serves a raw buffer, and leaves a lane of which two dwords are in range."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    lines = """
        s_mov_b32 s12, s4
        s_mov_b32 s13, s5
        s_movk_i32 s14, {records}
        s_mov_b32 s15, 0x20000
        v_lshlrev_b32 v2, 4, v0
        buffer_load_dwordx4 v[4:7], v2, s[12:15], 0 offen
        s_waitcnt vmcnt(0)
    """
    machine = Machine()
    for records, lean in ((512, [True]), (520, [False, True])):
        found, stored = machine.launch(lines.format(records=records) + STORE)
        assert found == [] and stored.tolist() == [4 * lane if 16 * lane < records else 0 for lane in range(64)]
        assert machine.handlers("buffer_load_dwordx4") == lean, records
