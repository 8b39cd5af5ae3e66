"""Dense products through executed kernels, by matrix instruction, against numpy's sgemm in the same run.

    python -m simgpu.tools.benchmarks.mfma [--size 1024] [--threads 2] [--cpu-time] [--only NAME] [--json]

Each wave of the kernel computes a 128 x 64 tile (f64: 64 x 64) of D (m, n) = A (m, k) B (k, n): it loads fragments, 16 bytes a
lane at a time, from operands packed in the order in which it does, and runs the matrix instruction on them. Small
integers, whose product is exact in every type: D is numpy's. Normally distributed numbers, where the time may
depend on them: a tile of D has the bits of `simgpu.hardware.mfma`. Where A is sparse, its third and fourth of four are 0 and
not stored, and rates count them as if they were; scales are 1. On a machine that others use, --cpu-time compares one thread's
CPU seconds instead of wall time.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    import numpy as np

    from simgpu.hardware.mfma import MatrixInstruction

LOAD = 16  # bytes of a lane in one load
DEEP = 16  # least number of reduction indices between loads, as in a GEMM's tile
FIRST_TWO = 0x44444444  # sparse indices: of four elements of A, the first two are stored
ONE = 127  # E8M0
REPEATS = 7  # repeats of a product and sgemm, turn about
Clock = Callable[[], float]
# (target, mnemonic, required fraction of sgemm's rate)
INSTRUCTIONS = (
    ("gfx908", "v_mfma_f32_32x32x2f32", 0.8),
    ("gfx908", "v_mfma_f32_16x16x4f32", 0.8),
    ("gfx908", "v_mfma_f32_32x32x8f16", 0.3),
    ("gfx908", "v_mfma_f32_16x16x16f16", 0.3),
    ("gfx908", "v_mfma_f32_32x32x4bf16", 0.3),
    ("gfx908", "v_mfma_i32_32x32x8i8", 0.3),
    ("gfx90a", "v_mfma_f32_32x32x8f16", 0.3),
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", 0.3),
    ("gfx90a", "v_mfma_f64_16x16x4f64", None),
    ("gfx942", "v_mfma_f32_32x32x2_f32", 0.8),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 0.2),
    ("gfx942", "v_mfma_f32_16x16x16_f16", 0.2),
    ("gfx942", "v_mfma_f32_32x32x8_bf16", 0.2),
    ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", 0.2),
    ("gfx942", "v_mfma_f32_16x16x32_bf8_bf8", 0.2),
    ("gfx942", "v_mfma_f32_32x32x4_xf32", None),
    ("gfx942", "v_mfma_i32_32x32x16_i8", 0.3),
    ("gfx942", "v_smfmac_f32_16x16x32_f16", 0.15),
    ("gfx942", "v_smfmac_f32_32x32x16_bf16", 0.15),
    ("gfx942", "v_smfmac_f32_16x16x64_fp8_fp8", 0.15),
    ("gfx942", "v_smfmac_i32_16x16x64_i8", 0.15),
    ("gfx950", "v_mfma_f32_32x32x16_f16", None),
    ("gfx950", "v_mfma_f32_16x16x128_f8f6f4", None),
    ("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4", 0.15),
    ("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4:fp4:fp4", 0.15),
    ("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4:fp8:fp4", 0.15),
    ("gfx950", "v_mfma_i32_16x16x64_i8", None),
)


@dataclass(frozen=True)
class Packing:
    """A kernel's reads of its operands, in loads of 16 bytes per lane."""

    row: MatrixInstruction
    steps: int  # instructions on each tile between loads

    @classmethod
    def of(cls, row: MatrixInstruction) -> Packing:
        return cls(row, max(1, 4 // row.registers("A"), DEEP // row.k))

    @property
    def k(self) -> int:
        """Reduction indices between loads."""
        return self.row.k * self.steps

    def count(self, operand: str) -> int:
        """Registers of a fragment that is `k` deep."""
        return self.row.registers(operand) * self.steps

    def across(self, operand: str) -> int:
        """Fragments along a wave's tile."""
        return self.tile[0] // self.row.m if operand == "A" else self.tile[1] // self.row.n

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of D that a wave computes: 128 registers of accumulators."""
        return (64 if self.row.cd_type == "f64" else 128), 64


def main() -> int:
    """Prints the table; status 1 if a product is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="m = n = k, a multiple of 512 (default: 1024)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, CPU seconds instead of wall time")
    parser.add_argument("--only", default="", help="instructions whose target and name contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if options.size < 512 or options.size % 512:
        parser.error(f"--size {options.size}: give a positive multiple of 512")
    threads = 1 if options.cpu_time else options.threads
    limit_threads(threads)  # before numpy is loaded
    clock = time.thread_time if options.cpu_time else time.perf_counter
    rows, sgemm = measure(options.size, threads, options.only, clock)
    from simgpu.tools.shared.console import print_json, show, table

    if options.json:
        print_json({"size": options.size, "threads": threads, "sgemm_gflops": sgemm, "products": rows})
    else:
        title = f"Dense products of {options.size}, {threads} thread(s); numpy sgemm {sgemm:.1f} GFLOP/s"
        columns = ("target", "instruction", "data", "GFLOP/s", "% of sgemm", "asked %", "ns an instruction", "exact")
        body = [
            (r["target"], r["instruction"], r["data"], r["gflops"], f"{100 * r['share']:.1f}",
             "" if r["asked"] is None else f"{100 * r['asked']:.0f}", r["ns_an_instruction"], "yes" if r["exact"] else "WRONG")
            for r in rows
        ]  # fmt: skip
        show(table(title, columns, body, left=3))
    return 0 if all(row["exact"] for row in rows) else 1


def measure(
    size: int, threads: int, only: str = "", clock: Clock = time.perf_counter
) -> tuple[list[dict[str, Any]], float]:
    """Returns a record for each product, and numpy's sgemm rate (GFLOP/s), the best of all.

    A product's fraction of sgemm's rate is the median of consecutive pairs: other work on the machine slows both.
    """
    import numpy as np

    from simgpu.hardware.mfma import find
    from simgpu.tools.shared.console import progress

    rng = np.random.default_rng(0)
    data = {
        "integers": [rng.integers(-2, 3, (size, size)).astype(np.float32) for _ in range(2)],
        "normal": [rng.standard_normal((size, size), np.float32) for _ in range(2)],
    }
    a, b = data["integers"]
    best_sgemm = math.inf
    rows: list[dict[str, Any]] = []
    for target, name, asked in INSTRUCTIONS:
        if only not in f"{target} {name}":
            continue
        for kind in data if find(name, target).cd_type == "f32" else ("integers",):
            with progress(f"{target} {name}, {kind}"):
                left, right = data[kind]
                product, exact = _product(target, name, left, right, threads, clock)
                pairs = [(_seconds_of(lambda: a @ b, clock), _seconds_of(product, clock)) for _ in range(REPEATS)]
            best_sgemm = min(best_sgemm, *(pair[0] for pair in pairs))
            took, share = min(pair[1] for pair in pairs), statistics.median(x / y for x, y in pairs)
            record: dict[str, Any] = {"target": target, "instruction": name, "data": kind, "asked": asked}
            rows.append({**record, "seconds": took, "share": share, "exact": exact})
    flops = 2.0 * size**3
    for record in rows:
        shape = find(record["instruction"], record["target"])
        issued = flops / (2 * shape.m * shape.n * shape.k)
        record["gflops"] = flops / record["seconds"] / 1e9
        record["ns_an_instruction"] = record["seconds"] * threads / issued * 1e9
    return rows, flops / best_sgemm / 1e9


def _seconds_of(work: Callable[[], object], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def _product(
    target: str, name: str, a: np.ndarray, b: np.ndarray, threads: int, clock: Clock
) -> tuple[Callable[[], object], bool]:
    """Returns the simulated product, compiled, and whether D is right: all of an exact product, else a tile's bits."""
    import numpy as np

    from simgpu import Device
    from simgpu.asm.builder.toolchain import assemble
    from simgpu.hardware.mfma import find
    from simgpu.tools.matrix.kernel import NAME

    row = find(name, target)._formats()
    packing = Packing.of(row)
    size = len(a)
    if row.sparse:
        a = np.where(np.arange(size) % 4 < 2, a, 0)
    gpu = Device(target, threads=threads)
    buffers = [gpu.upload(pack(packing, "A", a)), gpu.upload(pack(packing, "B", b))]
    output = gpu.alloc(size * size * (8 if row.cd_type == "f64" else 4))
    entry = gpu.load(assemble(source(packing, size), target))[NAME]
    arguments = [*buffers, output]
    entry.launch(grid=1, args=arguments)
    rows, columns = packing.tile
    grid = (size // columns, size // rows)
    product = functools.partial(entry.launch, grid=grid, args=arguments)
    product()
    d = unpack(row, output.download(np.uint32), size)
    if (a == a.round()).all():
        return product, bool((d == a @ b).all())
    return product, bool((d[: row.m, : row.n] == _tile(row, a, b)).all())


def _tile(row: MatrixInstruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the first m x n elements of A B by a chain of the instruction, from `simgpu.hardware.mfma`."""
    import numpy as np

    from simgpu.hardware.mfma import multiply
    from simgpu.matrix.one_mfma import DTYPES, stored_shape

    def raw(x: np.ndarray, kind: str) -> np.ndarray:
        values = x.astype(DTYPES[kind])
        return values.view(f"u{values.itemsize}")[None]

    left, right = raw(stored_columns(row, a[: row.m]), row.a_type), raw(b[:, : row.n], row.b_type)
    kept = left.shape[2] // (a.shape[1] // row.k)  # elements of a row of A in one instruction
    given = {"SCALE_A": ONE, "SCALE_B": ONE} if row.scaled else {"IDX": FIRST_TWO & 15} if row.sparse else {}
    name = {"SCALE_A": "scale_a", "SCALE_B": "scale_b", "IDX": "index"}
    extra: dict[str, Any] = {name[one]: np.full((1, *stored_shape(row, one)), bits) for one, bits in given.items()}
    d = np.zeros((1, row.m, row.n), np.uint32)
    for number, k in enumerate(range(0, a.shape[1], row.k)):
        d = multiply(row, left[:, :, number * kept : (number + 1) * kept], right[:, k : k + row.k], d, **extra)
    return d[0].view(np.float32)


def stored_columns(row: MatrixInstruction, a: np.ndarray) -> np.ndarray:
    """Returns the stored part of A (m, k): if it is sparse, the first two of four columns."""
    return a.reshape(len(a), -1, 4)[..., :2].reshape(len(a), -1) if row.sparse else a


def pack(packing: Packing, operand: str, matrix: np.ndarray) -> np.ndarray:
    """Packs A (or B) in the order in which waves and lanes load it: [wave's tile][k][fragment][load][lane][16 bytes], raw."""
    import numpy as np

    from simgpu.hardware.mfma.instruction import BITS
    from simgpu.matrix.one_mfma import DTYPES, element_type, places

    row = packing.row
    kind = element_type(row, operand)
    values = (stored_columns(row, matrix) if operand == "A" else matrix.T).astype(DTYPES[kind])
    side = row.m if operand == "A" else row.n
    owners = places(row, operand)[0]
    owners = owners if operand == "A" else owners.swapaxes(0, 1)
    key = (owners[..., 1].astype(np.int64) * 64 + owners[..., 0]) * 32 + owners[..., 2]
    order = np.argsort(key.ravel())  # (i, k) of the tile in the order of lane, register, bit
    size = len(matrix)
    tiles = values.reshape(size // side, side, size // row.k, owners.shape[1]).swapaxes(1, 2)
    lanes = tiles.reshape(size // side, size // row.k, -1)[..., order]
    if BITS[kind] < 8:
        bits = np.unpackbits(lanes.view(np.uint8)[..., None], axis=-1, bitorder="little", count=BITS[kind])
        lanes = np.packbits(bits.reshape(*lanes.shape[:2], -1), axis=-1, bitorder="little")
    fragments = lanes.reshape(size // side, size // packing.k, packing.steps, 64, -1).swapaxes(2, 3)
    across, loads = packing.across(operand), 4 * packing.count(operand) // LOAD
    raw = np.ascontiguousarray(fragments).view(np.uint8).reshape(-1, across, size // packing.k, 64, loads, LOAD)
    return np.ascontiguousarray(raw.transpose(0, 2, 1, 4, 3, 5))


def unpack(row: MatrixInstruction, raw: np.ndarray, size: int) -> np.ndarray:
    """Unpacks D from the waves' stores: [tile row][tile column][register][lane]."""
    import numpy as np

    from simgpu.matrix.one_mfma import DTYPES

    owners = row.map("D")[0]
    tiles = raw.reshape(size // row.m, size // row.n, row.registers("D"), 64)
    low = tiles[:, :, owners[..., 0], owners[..., 1]]
    if row.cd_type == "f64":
        high = tiles[:, :, owners[..., 0] + 1, owners[..., 1]].astype(np.uint64)
        low = low.astype(np.uint64) | high << np.uint64(32)
    return low.view(DTYPES[row.cd_type]).swapaxes(1, 2).reshape(size, size)


def source(packing: Packing, size: int) -> str:
    """Returns the kernel's text: workgroup (x, y) is one wave and computes D's tile column x, tile row y."""
    from simgpu.tools.matrix.kernel import FirstRegisters, clear, kernel, matrix_line

    row = packing.row
    across = {operand: packing.across(operand) for operand in "AB"}
    base = {"A": "s[4:5]", "B": "s[6:7]"}
    first = {"A": 16, "B": 16 + across["A"] * packing.count("A")}
    count = row.registers("D")
    accumulators = 0 if row.target == "gfx908" else 128
    body = clear(row.target, accumulators, across["A"] * across["B"] * count)
    if row.sparse or row.scaled:
        word = FIRST_TWO if row.sparse else ONE * 0x01010101
        body += [f"v_mov_b32 v{number}, 0x{word:x}" for number in (14, 15)]
    offsets = {"A": 2, "B": 10}
    for operand, group in (("A", "s3"), ("B", "s2")):
        fragment = 256 * packing.count(operand)  # bytes
        body += [f"s_mul_i32 s10, {group}, {size // packing.k * across[operand] * fragment}"]
        body += ["v_lshlrev_b32 v1, 2, v0", f"v_add_u32 v{offsets[operand]}, s10, v1"]
        for at in range(offsets[operand], offsets[operand] + across[operand] - 1):
            body.append(f"v_add_u32 v{at + 1}, 0x{fragment:x}, v{at}")
    body += [f"s_mov_b32 s11, {size // packing.k}", "loop:"]
    for operand in "AB":
        for at in range(across[operand]):
            start = first[operand] + at * packing.count(operand)
            for part in range(0, packing.count(operand), 4):
                offset = f" offset:{256 * part}" if part else ""
                registers = f"v[{start + part}:{start + part + 3}]"
                body.append(f"global_load_dwordx4 {registers}, v{offsets[operand] + at}, {base[operand]}{offset}")
    for operand, low in (("A", 4), ("B", 6)):
        step = across[operand] * 256 * packing.count(operand)
        body += [f"s_add_u32 s{low}, s{low}, {step}", f"s_addc_u32 s{low + 1}, s{low + 1}, 0"]
    body.append("s_waitcnt vmcnt(0)")
    for step in range(packing.steps):
        for i in range(across["A"]):
            for j in range(across["B"]):
                a = first["A"] + i * packing.count("A") + step * row.registers("A")
                b = first["B"] + j * packing.count("B") + step * row.registers("B")
                d = accumulators + (i * across["B"] + j) * count
                body.append(matrix_line(row, FirstRegisters(a=a, b=b, d=d, index=14, scales=14)))
    body += ["s_sub_u32 s11, s11, 1", "s_cmp_lg_u32 s11, 0", "s_cbranch_scc1 loop"]
    body += _stores(row, size, across, accumulators)
    return kernel(row.target, body, ("a", "b", "d"), 256 if row.target != "gfx908" else 128)


def _stores(row: MatrixInstruction, size: int, across: dict[str, int], accumulators: int) -> list[str]:
    count = row.registers("D")
    line = size // row.n * count * 256  # bytes of one row of D's tiles
    body = ["s_nop 15", "s_nop 15"]
    for i in range(across["A"]):
        body += [f"s_mul_i32 s10, s3, {across['A'] * line}", f"s_mul_i32 s12, s2, {across['B'] * count * 256}"]
        body += ["s_add_u32 s10, s10, s12", f"s_add_u32 s10, s10, {i * line}", "v_add_u32 v1, s10, v0"]
        for register in range(across["B"] * count):
            number = accumulators + i * across["B"] * count + register
            data = f"v{number}"
            if row.target == "gfx908":
                body += [f"v_accvgpr_read_b32 v2, a{number}", "s_nop 1"]
                data = "v2"
            body += [f"global_store_dword v1, {data}, s[8:9]", "v_add_u32 v1, 0x100, v1"]
    return body


if __name__ == "__main__":
    sys.exit(main())
