"""Staging of rows along k that begin anywhere: each load of a wave begins with a cache line, and requests it once.

Rows that begin in the middle of a line ask twice for a line that two steps share, if they are loaded step by step. Here a row's
windows of k elements begin with lines instead. A row begins `shift` elements after the beginning of its first line. So window j
has its elements from j·k - shift on, loaded by lanes that follow each other in memory, one element each. Lane x gets element
x - shift of step j, or, if x < shift, element x - shift + k of step j - 1. So these lanes are late, by a step:

* Registers. The window that brings late lanes their elements of step t brings the others those of step t + 1. These hold their
  elements of step t since the window before. A write of LDS takes one or the other, by a mask of lanes.
* LDS. The layout is that of other tiles. An element's place in a row is turned by the row's shift, so lanes have addresses of
  their own. Loads whose rows have equal shifts, and whose slots have equal swizzles, share one.
* Edges. A step is inside the view if the step after it is, too. Others are clipped, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from simgpu.asm.builder.formula import of
from simgpu.asm.parts.buffers import OUTSIDE, clip
from simgpu.asm.parts.integer_math import add_wide
from simgpu.asm.parts.staging import Staging, StagingUnit
from simgpu.hardware.isa.instruction import Reg


class WholeLineStaging(Staging):
    """Staging of an operand whose layout has `aligned` loads."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        half = self.layout.staged_words
        self.held = self.staged[half : 2 * half]
        self.late: dict[int, Reg] = {}  # pairs of SGPRs, by the first load that uses them

    @cached_property
    def same_places(self) -> list[int]:
        """For each load, the first one whose rows begin equally far after a line, and whose slots have its swizzles."""
        layout, threads, known = self.layout, np.arange(self.layout.threads), dict[tuple[bytes, bytes], int]()
        found = []
        for load in range(layout.loads):
            rows = layout.staged_element(threads, load)[0]
            key = (rows % (layout.aligned // layout.element)).tobytes(), layout.swizzle(layout.slot_of(rows)).tobytes()
            found.append(known.setdefault(key, load))
        return found

    def _bytes_from(self, first: int, load: int) -> int:
        """Returns the bytes of LDS from a load's first element to that of another one of its `same_places`."""
        places = (self.layout.byte(*self.layout.staged_element(0, number)) for number in (load, first))
        return int(next(places) - next(places))

    def prepare_loads(self) -> None:
        """Emits every load's offset, its k, counted from the step of the late lanes, and the masks of these lanes."""
        k, layout = self.k, self.layout
        k.comment(f"{layout.name}: {layout.loads} load(s) of an element, from the beginnings of cache lines on")
        first_row, first_k = layout.staged_element(self._thread, 0)
        row, place = k.vectors(row=first_row, place=first_k)
        rows = [layout.offset_from_first(load) for load in range(layout.loads)]
        for load, first in enumerate(self.same_places):
            step = rows[load]
            assert step is not None and not step[1]
            if first == load:
                begin = (of(row) + step[0]) * self.stride + self.resource[0]
                kk = k.vector("k", of(place) + layout.k - begin % layout.aligned // layout.element)
                self.late[load] = k.s.alloc("late lanes", 2)
                k.v_cmp_gt_i32(self.late[load], layout.k, kk)
            else:
                kk = self.units[first].k
            offset = k.vector(f"{layout.name} load offset", (of(row) + step[0]) * self.stride + of(kk) * layout.element)
            clip(k, offset, offset, of(self.rows_left) - step[0], row, note=f"rows of {layout.name} past the view: outside")
            self.units.append(StagingUnit(row, kk, step[0], 0, offset))
        k.v.free(row, place)

    def load_first(self, k_left: Reg) -> None:
        """Loads what lanes hold of the first step. k_left: SGPR, k of the view from that step on."""
        k, layout = self.k, self.layout
        nbytes = layout.k * layout.element
        add_wide(k, self.resource, -nbytes, -1, note="the window before")
        offset = k.v.alloc("offset of the first step")
        end = k.scalar("end of the row", of(k_left) + layout.k)
        for load, (first, unit) in enumerate(zip(self.same_places, self.units, strict=True)):
            clip(k, offset, unit.offset, end, unit.k)
            k.v_cndmask_b32(offset, offset, OUTSIDE, self.late[first], note="late lanes have none of it")
            self._load(self._half(self.held, load), offset, 0, 0, f"{layout.name} tile, load {load}, of the first window")
        add_wide(k, self.resource, nbytes)
        k.v.free(offset)
        k.s.free(end)

    def load_clipped(self, k_left: Reg) -> None:
        """Loads the next tile; rows and k outside the view read as 0, and nothing past a row's end is read."""
        offset = self.k.v.alloc("clipped offset")
        for load, unit in enumerate(self.units):
            clip(self.k, offset, unit.offset, k_left, unit.k)
            self._load(self._target(load, 0, 0, 1), offset, 0, 0, f"{self.layout.name} tile, load {load}, to the row's end")
        self.k.v.free(offset)

    def write_address(self) -> Reg:
        """Returns new VGPRs with the LDS addresses of the first writes to each of `same_places`, without the immediates."""
        k, layout = self.k, self.layout
        addresses = k.v.alloc(f"{layout.name}: LDS write addresses", len(self.late))
        for number, load in enumerate(self.late):
            row = layout.staged_element(self._thread, load)[0]
            k.set(addresses[number], layout.byte(row, of(self.units[load].k) % layout.k) + self.write_base)
        return addresses

    @property
    def write_key(self) -> tuple[object, ...]:
        """Key of the write addresses: the operand's own."""
        return self.layout.name, self.write_base

    def writes(self, address: Reg) -> list[Callable[[], None]]:
        """Returns calls that write a step's elements to LDS, one for each write. address: `write_address`, in the right stage."""
        return [partial(self._write, load, address) for load in range(self.layout.loads)]

    def _write(self, load: int, addresses: Reg) -> None:
        k, layout, first = self.k, self.layout, self.same_places[load]
        loaded, held = self._target(load, 0, 0, 1), self._half(self.held, load)
        for word in range(held.count):
            k.v_cndmask_b32(held[word], held[word], loaded[word], self.late[first])
        ahead = self.region.offset - self.write_base + self._bytes_from(first, load)
        k.ds_write(addresses[list(self.late).index(first)], held, offset=ahead, note=f"{layout.name} tile to LDS, load {load}")
        k.move(held, loaded, note="of the next tile, in lanes that are not late")

    def _half(self, half: Reg, load: int) -> Reg:
        return half[load * self.layout.unit_words : (load + 1) * self.layout.unit_words]
