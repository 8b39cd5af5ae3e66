"""Runs a single instruction's handler on a wave made by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.engine.lowering.handlers import handler_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import compiler
from simgpu.machine.mode import Mode


def _return(module: ir.Module, name: str) -> None:
    Frame(module, name).build.ret_void()


class Wave:
    """A wave's state as arrays: `s` (128,), `v` and `a` (256, 64), all uint32."""

    def __init__(self, nbytes: int = layout.WAVE_BYTES) -> None:
        self.raw = aligned_bytes(nbytes)
        self.context = aligned_bytes(layout.CTX_BYTES)
        self.raw[layout.CONTEXT : layout.CONTEXT + 8].view(np.uint64)[0] = self.context.ctypes.data
        self.s = self.raw[:512].view(np.uint32)
        self.v = self._rows(layout.VGPR)
        self.a = self._rows(layout.AGPR)
        self.s[126:128] = 0xFFFFFFFF

    def _rows(self, start: int) -> np.ndarray:
        return self.raw[start : start + 256 * layout.ROW].view(np.uint32).reshape(256, 64)

    @property
    def scc(self) -> int:
        return int(self.raw[layout.SCC])

    @scc.setter
    def scc(self, value: int) -> None:
        self.raw[layout.SCC] = value

    def run(self, inst: Instruction, mode: Mode | None = None) -> None:
        """Executes one instruction that neither branches nor touches memory."""
        address, slots = handler_of(inst, mode or Mode(), compiler())
        self.call(address, slots, inst.size // 4)

    def call(self, address: int, slots: Sequence[int] = (), dwords: int = 1) -> None:
        """Calls a handler of an instruction of `dwords` dwords."""
        records = aligned_bytes(layout.RECORD * (1 + dwords)).view(np.uint32).reshape(-1, 16)
        records[0, :2].view(np.uint64)[0] = address
        records[0, 2 : 2 + len(slots)] = slots
        records[-1, :2].view(np.uint64)[0] = compiler().address("return", _return)
        call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
        call(self.raw.ctypes.data, records.ctypes.data)
