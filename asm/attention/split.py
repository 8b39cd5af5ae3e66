"""Second kernel of split keys: merges the partial O and statistics that several workgroups stored in scratch memory into R."""

from __future__ import annotations

from simgpu.asm.attention.frame import LSE, PARTIAL, STATISTICS
from simgpu.asm.attention.merge import LARGEST, store_columns
from simgpu.asm.attention.shape import QUAD
from simgpu.asm.attention.softmax import inverse, log_sum_exp
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.add_parts import in_batches
from simgpu.asm.parts.buffers import OUTSIDE, clip, new_buffer
from simgpu.asm.parts.integer_math import add_wide, multiply_wide
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.registers import WAVES, partial_columns
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.cost import TOGETHER

STATE_BYTES = 2 * WORD
THREADS = WAVES * WAVEFRONT


def scratch(root: FusedAttention) -> tuple[tuple[str, int], ...]:
    """Returns names and bytes of the parts' scratch memory."""
    p = root.problem
    rows = root.trips("keys") * p.batch * p.heads * p.lq
    return ((PARTIAL, rows * partial_columns(p.dv) * WORD), (STATISTICS, rows * STATE_BYTES))


def emit_merge(root: FusedAttention) -> EmittedKernel:
    """Returns the kernel that merges the parts of split keys. A work-item has four columns of a row, and loops over its parts."""
    p, parts = root.problem, root.trips("keys")
    k = KernelBuilder(f"attention_merge_{parts}_d{p.dv}" + "_lse" * p.lse, root.descriptor.arch, THREADS)
    width = partial_columns(p.dv)
    pieces = width // QUAD
    rows = THREADS // pieces
    k.comment(f"one workgroup per {rows} rows of R; a part's m and row sum merge with ⊕")
    k.declare("pointer", PARTIAL, STATISTICS, "R", *((LSE,) if p.lse else ()))
    k.declare("i32", "rows", "R_row")
    arguments = k.load_arguments()
    k.work_item_x()
    row = k.vector("row", of(k.work_item, THREADS) // pieces)
    piece = k.vector("piece", of(k.work_item, THREADS) - of(row) * pieces)
    first = k.scalar("first row", of(k.group_x) * rows)
    left = k.scalar("rows left", (of(arguments["rows"]) - first).least(rows, "i32"))
    partial, states = _buffer(k, PARTIAL, arguments, first, width * WORD), _buffer(k, STATISTICS, arguments, first, STATE_BYTES)
    offset = k.vector("partial O offset", of(row) * (width * WORD) + of(piece) * (QUAD * WORD))
    clip(k, offset, offset, left, row, note="rows past the last: outside")
    state_offset = k.vector("statistics offset", of(row) * STATE_BYTES)
    clip(k, state_offset, state_offset, left, row)
    out, total, lowest = _parts(k, parts, (partial, states), (offset, state_offset), width)
    result, address = _result(k, arguments, row, piece, first)
    if p.lse:
        _store_logarithms(k, arguments[LSE], total, lowest, (row, piece, first, left))
    inverse(k, total, total)
    for n in range(QUAD):
        k.v_mul_f32(out[n], out[n], total)
    clip(k, address, address, left, row)
    k.v_lshlrev_b32(piece, 2, piece)
    store_columns(k, out, address, piece, result, p.dv, p.dv < width, k.v.alloc("address of a column"))
    k.s_endpgm()
    count = p.batch * p.heads * p.lq
    scalars = (count, p.dv * WORD)
    return k.finish(grid=(-(-count // rows), 1, 1), scalars=scalars)


def _buffer(k: KernelBuilder, name: str, arguments: dict[str, Reg], first: Reg, row_bytes: int) -> tuple[Reg, Reg, Reg]:
    """Returns a raw buffer at the workgroup's first row of part 0, and the 64-bit step to the next part's."""
    resource, step = new_buffer(k, arguments[name], name, (first, row_bytes)), k.s.alloc(f"{name} step", 2)
    multiply_wide(k, step, arguments["rows"], row_bytes)
    return resource, step[0], step[1]


def _parts(
    k: KernelBuilder, split: int, buffers: tuple[tuple[Reg, Reg, Reg], ...], offsets: tuple[Reg, Reg], d: int
) -> tuple[Reg, Reg, Reg]:
    """Emits the sum of the parts, up to TOGETHER at a time.

    Returns VGPRs with O and row sum, relative to the largest m of all parts, and with minus that m.
    """
    out, total, lowest = k.v.alloc("O", QUAD), k.v.alloc("row sum"), k.v.alloc("-m")
    count = min(split, TOGETHER)
    parts = [(k.v.alloc("part's O", QUAD), k.v.alloc("part's -m, row sum", 2)) for _ in range(count)]
    joint, old = k.v.alloc("joint -m"), k.v.alloc("factor")
    for register in (*(out[n] for n in range(QUAD)), total):
        k.v_mov_b32(register, 0)
    k.v_mov_b32(lowest, LARGEST, note="no key seen")

    def add(number: int) -> None:
        (partial, low, high), (states, state_low, state_high) = buffers
        for part, state in parts[:number]:
            k.buffer_load(state, offsets[1], states, 0)
            k.buffer_load(part, offsets[0], partial, 0, note=f"4 of {d} columns")
            for resource, words in ((partial, (low, high)), (states, (state_low, state_high))):
                add_wide(k, resource, *words, note="next part")
        for part, state in parts[:number]:
            k.v_min_f32(joint, lowest, state[0])
            k.v_exp_f32(old, k.v_sub_f32(old, joint, lowest))
            k.v_exp_f32(state[0], k.v_sub_f32(state[0], joint, state[0]))
            k.v_mov_b32(lowest, joint)
            for sum_, addend in ((total, state[1]), *((out[n], part[n]) for n in range(QUAD))):
                k.v_mul_f32(sum_, old, sum_)
                k.v_fmac_f32(sum_, state[0], addend)

    in_batches(k, split, count, add)
    return out, total, lowest


def _store_logarithms(k: KernelBuilder, base: Reg, total: Reg, lowest: Reg, places: tuple[Reg, Reg, Reg, Reg]) -> None:
    """Stores log(sum(exp)) of the rows, by the work-items of their first columns.

    places: VGPRs row and piece, SGPRs first row and rows left.
    """
    row, piece, first, left = places
    resource, value = new_buffer(k, base, LSE, (first, WORD)), k.v.alloc("LSE")
    log_sum_exp(k, value, total, lowest)
    address = k.vector("LSE offset", of(row) * WORD)
    clip(k, address, address, left, row)
    k.v_cndmask_b32(address, OUTSIDE, address, k.v_cmp_eq_u32("vcc", 0, piece), note="by one work-item a row")
    k.buffer_store(value, address, resource, 0, note="log(sum(exp))")


def _result(k: KernelBuilder, arguments: dict[str, Reg], row: Reg, piece: Reg, first: Reg) -> tuple[Reg, Reg]:
    """Returns R's buffer at the workgroup's first row, and a lane's offset from there. Heads are as contiguous as rows."""
    resource = new_buffer(k, arguments["R"], "R", (first, arguments["R_row"]))
    return resource, k.vector("R offset", of(row) * arguments["R_row"] + of(piece) * (QUAD * WORD))
