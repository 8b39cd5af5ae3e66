"""Places that loads leave to be fetched, and that matrix instructions fetch: a cache's contents change no result."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import ir

from simgpu.engine.launch import Launch
from simgpu.hardware.isa.instruction import Reg
from simgpu.hardware.mfma import find
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.jit import compiler
from simgpu.matrix.one_mfma import instruction_of
from simgpu.memory.whole_wave.prefetch import MOST, PLACES, PRODUCTS, PrefetchQueue
from tests.support.engine_kernel import Kernel
from tests.support.one_instruction import Wave

TOGETHER = 16
PITCH, STEP = 8192, 64


def counts(context: np.ndarray) -> tuple[int, int]:
    """Returns the numbers of fetched and left places."""
    head, tail = context.view(np.uint8)[layout.CTX_AHEAD :][:16].view(np.int64)
    return int(head), int(tail)


def entries(context: np.ndarray) -> np.ndarray:
    return context.view(np.uint8)[layout.CTX_AHEAD + 64 :][: 8 * PLACES].view(np.int64)


def leave(module: ir.Module, name: str) -> None:
    """Makes a handler that leaves v0's and v1's 16 places."""
    frame = Frame(module, name)
    PrefetchQueue(frame).leave(frame.load(frame.at(frame.wave, layout.VGPR), ir.VectorType(ir.IntType(64), TOGETHER), 64))
    frame.build.ret_void()


def offer(module: ir.Module, name: str) -> None:
    """Makes a handler that offers them."""
    frame = Frame(module, name)
    PrefetchQueue(frame).offer(frame.load(frame.at(frame.wave, layout.VGPR), ir.VectorType(ir.IntType(64), TOGETHER), 64))
    frame.build.ret_void()


def multiply(wave: Wave, name: str) -> int:
    """Runs an instruction on zeros; returns the number of places that it fetches, if there are enough."""
    row = find(name, "gfx942")
    d, a, b = (Reg("v", first, row.registers(operand)) for first, operand in ((64, "D"), (40, "A"), (48, "B")))
    wave.run(instruction_of(row, {"vdst": d, "src0": a, "src1": b, "src2": d}, {}))
    return min(row.m * row.n * row.k * row.blocks // PRODUCTS, MOST)


def test_places_are_fetched_in_the_order_in_which_they_were_left():
    wave = Wave()
    places = wave.v[:2].reshape(-1)[: 2 * TOGETHER].view(np.int64)
    for turn in range(PLACES // TOGETHER + 3):
        before = entries(wave.context).copy()
        places[:] = 4096 * turn + 8 * np.arange(TOGETHER)
        wave.call(compiler().address("leave places", leave))
        room = turn < PLACES // TOGETHER  # if full, all are fetched at once and the queue stays as it was
        assert counts(wave.context) == (0, TOGETHER * min(turn + 1, PLACES // TOGETHER))
        at = TOGETHER * turn % PLACES
        assert (entries(wave.context)[at : at + TOGETHER] == (places if room else before[at : at + TOGETHER])).all()
    head, tail = counts(wave.context)
    for name in 3 * ["v_mfma_f32_16x16x4_f32", "v_mfma_f32_32x32x8_f16", "v_mfma_f64_16x16x4_f64", "v_mfma_i32_16x16x32_i8"]:
        head += multiply(wave, name)
        assert counts(wave.context) == (head, tail)
    while head + multiply(wave, "v_mfma_f32_32x32x8_f16") <= tail:
        head += MOST
    assert counts(wave.context)[0] <= tail
    places[:] = 1
    wave.call(compiler().address("leave places", leave))
    assert counts(wave.context)[1] == tail + TOGETHER and (entries(wave.context)[:TOGETHER] == 1).all()


def test_what_is_offered_is_forgotten_where_there_is_no_room():
    wave = Wave()
    wave.context.view(np.uint8)[layout.CTX_AHEAD :][:16].view(np.int64)[:] = 5, 5 + PLACES - TOGETHER + 1
    wave.call(compiler().address("offer places", offer))
    assert counts(wave.context) == (5, 5 + PLACES - TOGETHER + 1) and not entries(wave.context).any()
    wave.context.view(np.uint8)[layout.CTX_AHEAD :][:16].view(np.int64)[:] = TOGETHER, PLACES
    wave.v[:2] = 7
    wave.call(compiler().address("offer places", offer))
    assert counts(wave.context) == (TOGETHER, PLACES + TOGETHER) and entries(wave.context)[:TOGETHER].all()


def launched(monkeypatch: pytest.MonkeyPatch, lines: str, nbytes: int) -> tuple[np.ndarray, int, int]:
    """Returns the places that a kernel left in its worker's queue, and host addresses of its buffer, in s[4:5], and of the
    bitmap of reads."""
    seen = []
    worker_of = Launch._worker

    def spied(self, *args):
        worker = worker_of(self, *args)
        seen.append((self, worker))
        return worker

    monkeypatch.setattr(Launch, "_worker", spied)
    kernel = Kernel("gfx942", lines)
    data = kernel.gpu.upload(np.zeros(nbytes, np.uint8))
    kernel.kernel.launch(grid=1, args=[data, data])
    (launch, worker), *_ = seen
    (entry,) = [e for e in launch.table.entries if e.base == data.address]
    left = entries(worker.context)[: counts(worker.context)[1]]
    return left, data._allocation.data.ctypes.data, entry.read


@pytest.mark.parametrize("lanes_of_a_row, register", [(4, "x4 v[20:23]"), (1, "x2 v[20:21]"), (16, " v20")])
def test_a_load_leaves_where_it_will_go_on(monkeypatch, lanes_of_a_row, register):
    """A loop loads along distant rows and leaves places in the next step's lines, and in the bitmap."""
    steps, bytes_of_row = 10, 64 // lanes_of_a_row if lanes_of_a_row > 1 else 8
    lines = f"""
s_mov_b32 s24, s4
s_and_b32 s25, s5, 0xffff
s_mov_b32 s26, -1
s_mov_b32 s27, 0x20000
v_and_b32 v1, {lanes_of_a_row - 1}, v0
v_lshrrev_b32 v2, {lanes_of_a_row.bit_length() - 1}, v0
v_mul_u32_u24 v1, {bytes_of_row}, v1
v_mul_u32_u24 v2, {PITCH:#x}, v2
v_add_u32 v1, v1, v2
s_mov_b32 s17, 0
again:
buffer_load_dword{register}, v1, s[24:27], s17 offen
s_add_u32 s17, s17, {STEP}
s_cmp_lt_u32 s17, {steps * STEP}
s_cbranch_scc1 again
"""
    left, start, bitmap = launched(monkeypatch, lines, 64 * PITCH)
    rows = 64 // lanes_of_a_row
    wanted = start + PITCH * np.arange(rows) + steps * STEP
    lines_left = {int(place) for place in left - left % 64}
    found = [int(place) - int(place) % 64 in lines_left for place in wanted]
    assert sum(found) == min(rows, 16)  # only one of four lanes is used
    assert any(bitmap <= place < bitmap + 8 * PITCH for place in left)


def test_a_stream_leaves_every_line_of_its_next_step(monkeypatch):
    steps, step = 12, 1024
    lines = f"""
v_lshlrev_b32 v1, 4, v0
s_mov_b32 s17, 0
again:
global_load_dwordx4 v[20:23], v1, s[4:5]
v_add_u32 v1, {step:#x}, v1
s_add_u32 s17, s17, 1
s_cmp_lt_u32 s17, {steps}
s_cbranch_scc1 again
"""
    left, start, bitmap = launched(monkeypatch, lines, 64 * step)
    assert set(left) >= {start + at for at in range(4 * step, (steps + 1) * step, 64)}  # the record learns, then the wave
    of_bitmap = np.sort(left[(bitmap <= left) & (left < bitmap + 8 * step)])
    assert len(of_bitmap) >= 16 and (np.diff(of_bitmap) == 64).all()
