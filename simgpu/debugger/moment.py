"""Contents of a stopped workgroup: its waves' places and registers, LDS, device memory, arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.breakpoints import RegisterNames
from simgpu.debugger.code import ReplayCode
from simgpu.debugger.named import NamedArray, element, name_of
from simgpu.debugger.native.conditions import Expression
from simgpu.debugger.place import WavePlace
from simgpu.debugger.replay import Replay
from simgpu.debugger.snapshot import Snapshot
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.mfma import find
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.matrix.one_mfma import DTYPES, element_type, from_registers

if TYPE_CHECKING:
    from simgpu.engine.device import Kernel

WAITS = {Status.BARRIER: "waits at a barrier", Status.ENDED: "ended", Status.WAITING: "waits for other workgroups"}


class Moment:
    """A replayed workgroup at one moment. wave: the default wave of all methods."""

    kernel: Kernel
    replay: Replay
    code: ReplayCode
    names: Mapping[str, NamedArray]
    wave: int

    @property
    def waves(self) -> int:
        """Number of waves in the workgroup."""
        return len(self.replay)

    def wave_place(self, wave: int | None = None) -> WavePlace:
        """Returns the place of a wave at this moment."""
        return self.replay.place(self._wave(wave))

    def wave_state(self, wave: int | None = None) -> str:
        """Describes the state of a wave; "" if it runs."""
        return WAITS.get(Status(self.replay.wave(self._wave(wave)).status), "")

    def record(self, wave: int | None = None) -> int:
        """Returns the record of the instruction that a wave is about to execute, or of its s_endpgm if it ended."""
        return int(self.replay.wave(self._wave(wave)).resume)

    def _wave(self, wave: int | None) -> int:
        number = self.wave if wave is None else wave
        if not 0 <= number < self.waves:
            raise LaunchError(f"wave {number} of a workgroup that has {self.waves}: they are 0 to {self.waves - 1}")
        return number

    def snapshot(self, wave: int | None = None) -> Snapshot:
        """Returns a copy of a wave's registers at this moment."""
        number = self._wave(wave)
        replay, record = self.replay, self.record(number)
        raw = replay.bytes_of(number).copy()

        def rows(start: int) -> np.ndarray:
            return raw[start : start + 256 * layout.ROW].view(np.uint32).reshape(256, layout.LANES)

        inst = replay.launch.instruction(record)
        assert inst is not None
        return Snapshot(
            4 * (record - replay.launch.entry), inst, self.code.line(record) or None, replay.group, number, 0, int(raw[layout.SCC]),
            raw[: layout.SCC].view(np.uint32), rows(layout.VGPR), rows(layout.AGPR),
        )  # fmt: skip

    def registers(self, name: str, wave: int | None = None) -> np.ndarray:
        """Returns registers as uint32: (count, 64) for vector registers, (count,) for scalar registers or one lane."""
        wanted = RegisterNames.parse(name)
        values = self.snapshot(wave).registers(wanted.reg)
        return values if wanted.lane is None else values[:, wanted.lane]

    def value(self, expression: str, wave: int | None = None) -> Any:
        """Returns the value of an expression (`native.conditions`): a number, or an array with one per lane."""
        return Expression(expression).evaluate(self.replay.bytes_of(self._wave(wave)))

    def tile(self, name: str, operand: str, mnemonic: str, wave: int | None = None) -> np.ndarray:
        """Returns the matrix (blocks, rows, columns) that registers hold as operand A, B, C or D of a matrix instruction."""
        row = find(mnemonic, self.kernel.module.device.arch)._formats()
        wanted, count = RegisterNames.parse(name), row.registers(operand.upper())
        if wanted.reg.file == "s" or wanted.reg.count != count:
            raise LaunchError(f"{name}: {operand.upper()} of {row.mnemonic} takes {count} vector registers")
        raw = from_registers(row, operand.upper(), self.snapshot(wave).registers(wanted.reg))
        kind = element_type(row, operand.upper())
        return raw.view(DTYPES[kind]) if kind in DTYPES else raw

    def lds(self, offset: int = 0, dtype: Any = np.uint32, shape: Sequence[int] | int | None = None) -> np.ndarray:
        """Returns a copy of a part of the workgroup's LDS as an array; by default all from the offset (bytes) on."""
        held, kind = self.replay.lds(), np.dtype(dtype)
        extents = (max(0, len(held) - offset) // kind.itemsize,) if shape is None else tuple(np.atleast_1d(shape).tolist())
        nbytes = int(np.prod(extents, dtype=np.int64)) * kind.itemsize
        if offset < 0 or offset + nbytes > len(held):
            raise LaunchError(f"{nbytes} bytes of LDS from {offset:#x} on: the workgroup has {len(held)}")
        return held[offset : offset + nbytes].copy().view(kind).reshape(extents)

    def memory(self, address: int, nbytes: int) -> bytes:
        """Returns bytes of device memory at this moment. Raises LaunchError if no allocation contains them."""
        held = self.kernel.module.device.memory.find(address)
        if held is None or address + nbytes > held.end:
            near = self.kernel.module.device.memory.describe(address)
            raise LaunchError(f"{nbytes} bytes at {address:#x}: {near if held is None else 'the allocation ends before'}")
        return held.data[address - held.base : address - held.base + nbytes].tobytes()

    def element(self, text: str) -> tuple[int, np.ndarray]:
        """Returns the address and the value (0-d) of an element of a buffer, `C[404,622]`."""
        address, kind = element(self.names, text)
        return address, np.frombuffer(self.memory(address, kind.itemsize), kind).reshape(())

    def name_of(self, address: int) -> str:
        """Returns the element of a named array that holds a byte of memory, `A[404,17]`; "" if none does."""
        return name_of(self.names, address)

    def initial_bytes(self, address: int, nbytes: int) -> bytes:
        """Returns bytes of device memory as they were at the workgroup's beginning."""
        return self.replay.initial.bytes_at(address, nbytes)
