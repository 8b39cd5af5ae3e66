"""Changes the state of a stopped workgroup: registers, lanes of registers, variables of the source, elements in memory.

A change lasts as long as the workgroup runs forward: going back runs the launch again without it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.breakpoints import RegisterNames
from simgpu.debugger.locals import object_named
from simgpu.debugger.named import element
from simgpu.debugger.objects import type_of
from simgpu.hardware.errors import LaunchError
from simgpu.machine import layout

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger


def assign(debugger: Debugger, target: str, text: str, wave: int | None = None) -> None:
    """Sets a value. Raises LaunchError if the target has no place, or the value does not fit.

    target: a register (`v3`, `v3[5]` for one lane, `s[4:5]`, `exec`, `scc`), an element in memory (`C[4,22]`, `0x100:f16`), or
    a variable or its part (`i`, `i[5]` for one lane, `t[3]`, `s.x`, `*p`), with or without `$` before it.
    text: a number. All lanes get it if none is named.

    >>> from simgpu import asm, debug, operators, Device
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> with debug(run.kernel, **run.call) as held:
    ...     assign(held, "$v3[5]", "1.5")
    ...     float(held.value("f32(v3[5])"))
    1.5
    """
    name = target.strip().removeprefix("$")
    if name == "scc":
        raw = _bytes(text, np.dtype(np.uint32), name)
        if raw[0] > 1 or raw[1:].any():
            raise LaunchError(f"scc = {text.strip()}: scc is 0 or 1")
        _write(debugger, wave, layout.SCC, raw)
        return
    if name.split("[")[0].strip() in debugger.names or name.startswith("0x"):
        address, kind = element(debugger.names, name)
        debugger.memory(address, kind.itemsize)  # raises if no allocation has it
        held = debugger.kernel.module.device.memory.find(address)
        assert held is not None
        held.data[address - held.base : address - held.base + kind.itemsize] = _bytes(text, kind, name)
        return
    if not _assign_variable(debugger, name, text, wave):
        _assign_register(debugger, RegisterNames.parse(name), text, wave)


def _assign_register(debugger: Debugger, wanted: RegisterNames, text: str, wave: int | None) -> None:
    count = wanted.reg.count
    if count > 2:
        raise LaunchError(f"{wanted}: set one or two registers at a time")
    is_float = not re.fullmatch(r"\s*[-+]?(0[xX][0-9a-fA-F]+|\d+)\s*", text)
    kind = np.dtype(f"{'f' if is_float else 'u'}{4 * count}")
    _set_words(debugger, wave, wanted, _bytes(text, kind, str(wanted)))


def _assign_variable(debugger: Debugger, name: str, text: str, wave: int | None) -> bool:
    """Sets a variable of the source, if the name is one's."""
    found = object_named(debugger, name, wave)
    if found is None:
        return False
    kind = type_of(found.type.kind, found.type.size)
    if kind is None:
        raise LaunchError(f"{name} is no number: set one of its parts, as {name}[0] or {name}.x")
    try:
        found.storage.write(found.at, _bytes(text, kind, name), found.lane)
    except LaunchError as error:
        raise LaunchError(f"{name}: {error}") from None
    return True


def _set_words(debugger: Debugger, wave: int | None, wanted: RegisterNames, raw: np.ndarray) -> None:
    """Sets consecutive registers to the words in `raw`: of a lane, of all lanes, or scalar ones."""
    at, nbytes = wanted.span
    if wanted.reg.file == "s":
        _write(debugger, wave, at, raw[:nbytes])
        return
    for number, word in enumerate(raw.reshape(-1, 4)):
        row = at + layout.ROW * number
        _write(debugger, wave, row, word if wanted.lane is not None else np.tile(word, layout.LANES))


def _write(debugger: Debugger, wave: int | None, at: int, raw: np.ndarray) -> None:
    number = debugger.wave if wave is None else wave
    debugger.wave_place(number)  # raises if there is no such wave
    debugger.replay.bytes_of(number)[at : at + len(raw)] = raw


def _bytes(text: str, kind: np.dtype, name: str) -> np.ndarray:
    """Returns the bytes of a number of this type. Raises LaunchError for another text, and for a number that does not fit."""
    try:
        if kind.kind not in "iu":
            with np.errstate(over="ignore"):
                made = np.asarray(float(text)).astype(kind)
        else:
            value, bits = int(text, 0), 8 * kind.itemsize
            if not -(1 << bits - 1) <= value < 1 << bits:
                raise LaunchError(f"{name} = {text.strip()}: it has {bits} bits")
            made = np.frombuffer((value % (1 << bits)).to_bytes(kind.itemsize, "little"), kind)
    except ValueError:
        raise LaunchError(f"{name} = {text.strip()}: give a number ({kind})") from None
    return np.frombuffer(made.tobytes(), np.uint8)
