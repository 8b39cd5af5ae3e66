"""Structured test of the paper for a matrix instruction, run as a kernel, simulated or on a GPU: Q[i,:] = i, K = I.

D must be Q, so every lane's registers say which row of D they hold. A naive reading is shown next to them: the paper's "thread
tid owns output row tid mod m" (section on the layout pitfall). Formats too narrow for the row numbers take one launch for each
base-4 digit. `product` tests the rest, the owners of columns and of k: small random integers, whose product is exact in every
format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.mfma.instruction import BITS
from simgpu.matrix.one_mfma import DTYPES, element_type, stored_shape, to_registers
from simgpu.tools.matrix.kernel import NAME, FirstRegisters, clear, kernel, loads, matrix_line, stores
from simgpu.tools.shared.console import table

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.hardware import hip

ONE_E8M0 = 127
KEPT = 0b0100  # a sparse A holds the first two of every four k


@dataclass(frozen=True)
class Probe:
    """Results of the test."""

    row: MatrixInstruction
    registers: np.ndarray  # (elements, 64): each of D's registers by lane
    naive: np.ndarray  # (elements, 64): the row that the naive reading expects there
    matrix: np.ndarray  # (m, n): block 0 of D, read by the layout
    blocks_agree: bool  # the other blocks of D are the same

    @property
    def agrees(self) -> bool:
        """True if the layout finds D[i,:] = i."""
        rows = np.arange(self.row.m)[:, None]
        return self.blocks_agree and bool((self.matrix == rows).all())

    @property
    def naive_wrong(self) -> int:
        return int((self.registers != self.naive).sum())


def probe(row: MatrixInstruction, gpu: Device | hip.Device) -> Probe:
    """Assembles and runs the test on `gpu`, which must be the row's target. Raises ToolchainError without an assembler."""
    row = row._formats()
    narrow = BITS[row.a_type] <= 8 and row.a_type != "i8"
    digits = 3 if narrow else 1
    values = np.arange(row.m)
    total: np.ndarray | None = None
    for digit in range(digits):
        part = values if digits == 1 else values // 4**digit % 4
        got = _launch(row, _fragments(row, part), gpu) * 4**digit
        total = got if total is None else total + got
    assert total is not None
    blocks = _matrices(row, total)
    naive = np.broadcast_to(np.arange(64) % row.m, total.shape)
    return Probe(row, total, naive, blocks[0], bool((blocks == blocks[0]).all()))


def product(row: MatrixInstruction, gpu: Device | hip.Device, seed: int = 0) -> tuple[int, int]:
    """Returns (wrong, all) elements of D = A B for integers from -2 to 2, read and written by the layout."""
    row = row._formats()
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2, 3, (row.blocks, *stored_shape(row, operand))) for operand in "AB")
    dense = a
    if row.sparse:
        dense = np.zeros((row.blocks, row.m, row.k), a.dtype)
        dense[:, :, 0::4], dense[:, :, 1::4] = a[:, :, 0::2], a[:, :, 1::2]
    parts = [_bits(row, "A", a), _bits(row, "B", b), *_extra_operands(row, KEPT)]
    wrong = _matrices(row, _launch(row, [parts], gpu)) != dense @ b
    return int(wrong.sum()), wrong.size


def _launch(row: MatrixInstruction, fragments: list[list[np.ndarray]], gpu: Device | hip.Device) -> np.ndarray:
    """Returns D's registers as numbers, (elements, 64), after one instruction for each step's registers."""
    at = FirstRegisters()
    counts = [row.registers("A"), row.registers("B")] + [1] * row.sparse + [1, 1] * row.scaled
    first = [at.a, at.b] + [at.index] * row.sparse + [at.scales, at.scales + 1] * row.scaled
    body = clear(row.target, at.d, row.registers("D"))
    for _ in fragments:
        for register, count in zip(first, counts, strict=True):
            body += loads(register, count)
        body += ["s_waitcnt vmcnt(0)", matrix_line(row, at)]
    body += stores(row.target, at.d, row.registers("D"))
    source: Any = gpu.upload(np.concatenate([part for step in fragments for part in step]))
    output: Any = gpu.alloc(256 * row.registers("D"))
    gpu.load(assemble(kernel(row.target, body), row.target))[NAME].launch(grid=1, block=64, args=[source, output])
    raw = output.download(np.uint32, (row.registers("D"), 64))
    for buffer in (source, output):
        gpu.free(buffer)
    if row.cd_type == "f64":
        return (raw[::2].astype(np.uint64) | raw[1::2].astype(np.uint64) << np.uint64(32)).view(np.float64)
    return raw.view(DTYPES[row.cd_type]).astype(np.float64)


def _fragments(row: MatrixInstruction, rows: np.ndarray) -> list[list[np.ndarray]]:
    """Returns the registers of A, B and the further operands, by step: as many steps as fill K = I.

    A sparse A takes each part of k twice: it keeps the first two of every four k, then the others.
    """
    steps = []
    for start in range(0, row.n, row.k):
        identity = np.zeros((row.k, row.n))
        for k in range(min(row.k, row.n - start)):
            identity[k, start + k] = 1
        for index in (KEPT, 0b1110) if row.sparse else (0,):
            a = np.repeat(rows[:, None], stored_shape(row, "A")[1], axis=1)
            steps.append([_bits(row, "A", a), _bits(row, "B", identity), *_extra_operands(row, index)])
    return steps


def _extra_operands(row: MatrixInstruction, index: int) -> list[np.ndarray]:
    """Returns the registers of a sparse instruction's indices, the same everywhere, and of a scaled one's scales, 1."""
    parts = [_raw(row, "IDX", index)] if row.sparse else []
    return parts + ([_raw(row, "SCALE_A", ONE_E8M0), _raw(row, "SCALE_B", ONE_E8M0)] if row.scaled else [])


def _bits(row: MatrixInstruction, operand: str, values: np.ndarray) -> np.ndarray:
    """Returns an operand's registers from (rows, columns) for every block or (blocks, rows, columns)."""
    kind = DTYPES[element_type(row, operand)]
    raw = values.astype(kind).view(f"u{kind.itemsize}")
    return to_registers(row, operand, np.broadcast_to(raw, (row.blocks, *raw.shape[-2:])))


def _raw(row: MatrixInstruction, operand: str, value: int) -> np.ndarray:
    return to_registers(row, operand, np.full((row.blocks, *stored_shape(row, operand)), value, np.uint64))


def _matrices(row: MatrixInstruction, values: np.ndarray) -> np.ndarray:
    """Returns the values by the layout: (blocks, m, n)."""
    wide = 2 if row.cd_type == "f64" else 1
    owners = row.map("D")
    return values[owners[..., 0] // wide, owners[..., 1]]


def probe_document(result: Probe) -> dict[str, Any]:
    """Returns a JSON document."""
    return {
        "test": "Q[i,:]=i, K=I",
        "agrees": result.agrees,
        "rows_by_register_and_lane": result.registers.astype(int).tolist(),
        "naive_rows": result.naive.astype(int).tolist(),
        "naive_wrong": result.naive_wrong,
        "D": result.matrix.astype(int).tolist(),
    }


def probe_lines(result: Probe) -> list[RenderableType]:
    """Returns lines for people: the row that each lane holds next to the naive reading's."""
    row = result.row
    registers = range(len(result.registers))
    columns = ("lane", "naive", *(f"D {r}" for r in registers))
    body = []
    for lane in range(64):
        came = result.registers[:, lane].astype(int)
        naive = int(result.naive[0, lane])
        cells = [Text(str(value), "green" if value == naive else "bold red") for value in came]
        body.append((str(lane), Text(str(naive), "dim"), *cells))
    right = int(result.registers.size - result.naive_wrong)
    lines: list[RenderableType] = [
        "Q[i,:] = i, K = I, run as a kernel: each register shows the row of D that it holds.",
        f"naive: row = tid mod {row.m}, which the paper names as the pitfall; where it is wrong the number is red.",
        table("Row of D by lane and register", columns, body, left=0),
        "",
        f"The naive reading is right in {right:,} of {result.registers.size:,} places.",
    ]
    if row.m == row.n:
        lines.append("Reading D by it gives C[i,j] = j, the transpose of what was computed, without any error.")
    lines.append(
        "The layout of `simgpu layout` reads D[i,:] = i: it agrees."
        if result.agrees
        else "DISAGREES: the layout of `simgpu layout` does not read D[i,:] = i."
    )
    return lines
