"""`simgpu.mfma`: one matrix instruction on whole matrices, through fragments and its compiled handler.

`to_registers` and `from_registers` move raw elements between matrices and their 64-lane registers, by the layouts of
`simgpu.hardware.mfma`; `execute` runs the handler on registers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import ir

from simgpu.alu.valu import Mode
from simgpu.engine.lowering.handlers import handler_of
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.hardware.isa.instruction import Instruction, Operand, Reg
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.matrix_table import FORMATS
from simgpu.hardware.mfma import MatrixInstruction, find
from simgpu.hardware.mfma.instruction import BITS, SCALE_BLOCK
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import Compiler, compiler

# Array dtype of each element type; 6- and 4-bit ones use a byte an element.
DTYPES: Mapping[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "f64": np.float64, "f32": np.float32, "xf32": np.float32, "i32": np.int32, "f16": np.float16,
        "bf16": ml_dtypes.bfloat16, "i8": np.int8, "fp8": ml_dtypes.float8_e4m3fn,
        "bf8": ml_dtypes.float8_e5m2, "fp8_fnuz": ml_dtypes.float8_e4m3fnuz,
        "bf8_fnuz": ml_dtypes.float8_e5m2fnuz, "fp6": ml_dtypes.float6_e2m3fn,
        "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn,
    }.items()
}  # fmt: skip
# First registers of the operands in a wave of this module; the largest D has 32.
PLACES = {"A": 0, "B": 8, "C": 32, "D": 64, "IDX": 16, "SCALE_A": 17, "SCALE_B": 18}  # register numbers


def mfma(
    mnemonic: str,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    target: str,
    *,
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    neg: Sequence[int] = (0, 0, 0),
    index: np.ndarray | None = None,
    scale_a: np.ndarray | None = None,
    scale_b: np.ndarray | None = None,
) -> np.ndarray:
    """Computes D = A·B + C as the instruction does, bit for bit.

    A (m, k), B (k, n), C (m, n), or each (blocks, …); a 2-D operand fills every block. D is 2-D if all three are.
    Elements: the value dtype (float16, float32, float64, int8, int32, ml_dtypes bfloat16, float8_*, float6_*, float4_*), or
    unsigned integers of the element's width as raw bits (6 and 4 bits: uint8). D: float32, float64 or int32.
    smfmac: A (m, k/2) holds the kept elements, index (m, k/4) the 4-bit fields with their positions among four k (low two
    bits: the first); abid selects the set of the index register.
    f8f6f4: cbsz and blgp, or `…_f8f6f4:fp4:bf6`, select the formats of A and B. The scaled ones take scale_a (m, k/32) and
    scale_b (k/32, n), E8M0 as float8_e8m0fnu or uint8.
    neg: 1 to negate f64 A, B, C. target: a gfx name or a board.

    Raises TargetError for an instruction or modifier that the target lacks, LaunchError for arrays that do not fit it.

    >>> A, B, C = np.full((4, 2), 3, "f4"), np.ones((2, 4), "f4"), np.zeros((4, 4), "f4")
    >>> mfma("v_mfma_f32_4x4x2bf16", A.astype("bfloat16"), B.astype("bfloat16"), C, "mi100")[0]
    array([6., 6., 6., 6.], dtype=float32)
    """
    row = find(mnemonic, target)
    if row.flexible:
        row, cbsz, blgp = _formats(row, mnemonic, cbsz, blgp)
    _check_modifiers(row, cbsz, abid, blgp, neg)
    _check_presence(row, index, scale_a, scale_b)
    values: dict[str, np.ndarray | None] = {
        "A": A, "B": B, "C": C, "IDX": index, "SCALE_A": scale_a, "SCALE_B": scale_b,
    }  # fmt: skip
    present = {name: np.asarray(value) for name, value in values.items() if value is not None}
    raw = {name: element_bits(row, name, value) for name, value in present.items()}
    registers = {
        name: to_registers(row, name, bits, abid=abid if name == "IDX" and not cbsz else 0)
        for name, bits in raw.items()
    }
    mods = {"cbsz": cbsz, "abid": abid, "blgp": blgp}
    if any(neg):
        mods["neg"] = sum(bool(bit) << at for at, bit in enumerate(neg))
    if row.scaled:
        mods["op_sel_hi"] = 0  # byte 0 of each scale register
    written = execute(row, registers, {name: value for name, value in mods.items() if value or name == "op_sel_hi"})
    d = from_registers(row, "D", written).view(DTYPES[row.cd_type])
    return d if any(present[name].ndim == 3 for name in "ABC") else d[0]


def _formats(
    row: MatrixInstruction, mnemonic: str, cbsz: int, blgp: int
) -> tuple[MatrixInstruction, int, int]:
    """Returns the f8f6f4 row with the formats of the mnemonic, or else of CBSZ and BLGP."""
    if ":" not in mnemonic:
        return row.with_formats(cbsz, blgp), cbsz, blgp
    if cbsz or blgp:
        raise TargetError(f"{mnemonic} names its formats already: leave cbsz and blgp out")
    return row, FORMATS.index(row.a_type), FORMATS.index(row.b_type)


def _check_modifiers(
    row: MatrixInstruction, cbsz: int, abid: int, blgp: int, neg: Sequence[int]
) -> None:
    for name, value, limit in (("cbsz", cbsz, 8), ("abid", abid, 16), ("blgp", blgp, 8)):
        if not isinstance(value, (int, np.integer)) or not 0 <= value < limit:
            raise TargetError(f"{row.mnemonic}: {name}={value!r} is no field value; it must be 0 to {limit - 1}")
    if len(neg) != 3:
        raise TargetError(f"{row.mnemonic}: neg={tuple(neg)} must have three entries, for A, B and C")
    if any(neg) and "neg" not in row.modifiers:
        raise TargetError(f"{row.mnemonic} on {row.target} takes no neg; only f64 on gfx942 and gfx950 does")
    if row.flexible:
        if abid:
            raise TargetError(f"{row.mnemonic} on {row.target} takes no abid")
        return
    row.map("IDX" if row.sparse else "A", cbsz, abid, blgp)  # raises for modifiers that the row does not take


def _check_presence(row: MatrixInstruction, index: Any, scale_a: Any, scale_b: Any) -> None:
    for name, value, wanted in (
        ("index", index, row.sparse), ("scale_a", scale_a, row.scaled), ("scale_b", scale_b, row.scaled)
    ):  # fmt: skip
        if wanted and value is None:
            raise LaunchError(f"{row.mnemonic} needs {name}=: {_meaning(row, name)}")
        if value is not None and not wanted:
            hint = "; the v_mfma_scale_ form does" if row.flexible and name != "index" else ""
            raise LaunchError(f"{row.mnemonic} takes no {name}{hint}")


def _meaning(row: MatrixInstruction, name: str) -> str:
    if name == "index":
        return f"the 4-bit index fields, shape ({row.m}, {row.k // 4})"
    shape = (row.m, row.k // SCALE_BLOCK) if name == "scale_a" else (row.k // SCALE_BLOCK, row.n)
    return f"E8M0 scales, shape {shape}"


def stored_shape(row: MatrixInstruction, operand: str) -> tuple[int, int]:
    """Returns (rows, columns) of an operand's array: a sparse A has half of its k, scales have one entry for 32 k."""
    rows, columns = row.shape(operand)
    shrink = {"SCALE_A": SCALE_BLOCK, "IDX": 4, "A": 2 if row.sparse else 1}.get(operand, 1)
    return (rows // SCALE_BLOCK if operand == "SCALE_B" else rows), columns // shrink


def element_type(row: MatrixInstruction, operand: str) -> str:
    """Returns the name of an operand's element type: "e8m0" for scales, "index" for IDX."""
    names = {"A": row.a_type, "B": row.b_type, "C": row.cd_type, "D": row.cd_type, "IDX": "index"}
    return names.get(operand, "e8m0")


def element_bits(row: MatrixInstruction, operand: str, value: np.ndarray) -> np.ndarray:
    """Returns an operand's elements as uint64 raw bits of shape (blocks, rows, columns), checked.

    A 2-D array fills every block. Raises LaunchError for a shape or dtype that does not fit.
    """
    name = {"IDX": "index", "SCALE_A": "scale_a", "SCALE_B": "scale_b"}.get(operand, operand)
    shape = stored_shape(row, operand)
    if value.shape not in (shape, (row.blocks, *shape)):
        raise LaunchError(
            f"{row.mnemonic}: {name} has shape {value.shape}; it must be {shape} or {(row.blocks, *shape)}"
        )
    kind = element_type(row, operand)
    if kind == "index":
        bits, wanted, fits = 4, np.dtype(np.uint8), value.dtype.kind in "iu"
    else:
        bits = 8 if kind == "e8m0" else BITS[kind]
        wanted = np.dtype(ml_dtypes.float8_e8m0fnu) if kind == "e8m0" else DTYPES[kind]
        fits = value.dtype in (wanted, np.dtype(f"u{wanted.itemsize}"))
    if not fits:
        raise LaunchError(
            f"{row.mnemonic}: {name} is {value.dtype}; on {row.target} it must be {wanted.name}"
            f" or raw bits in uint{8 * wanted.itemsize}"
        )
    whole = value if kind == "index" else np.ascontiguousarray(value).view(f"u{wanted.itemsize}")
    if bits < 8 * wanted.itemsize and whole.size and (whole.min() < 0 or whole.max() >> bits):
        raise LaunchError(f"{row.mnemonic}: {name} holds {whole.max()}, but its elements have {bits} bits")
    return np.broadcast_to(whole.astype(np.uint64), (row.blocks, *shape))


def places(row: MatrixInstruction, operand: str, abid: int = 0) -> np.ndarray:
    """Returns (register, lane, low bit) of every stored element: (blocks, rows, columns, 3).

    Unlike `MatrixInstruction.map`, it has one entry for each element of `mfma`'s array.
    """
    owners = row.map(operand, abid=abid) if abid else row.map(operand)
    if operand == "A" and row.sparse:
        # Four k share a place of two elements; the lower slot is in the low bits.
        pairs = np.repeat(owners[:, :, ::4], 2, axis=2)
        pairs[:, :, 1::2, 2] += BITS[row.a_type]
        return pairs
    if operand == "IDX":
        return owners[:, :, ::4]
    if operand == "SCALE_A":
        return owners[:, :, ::SCALE_BLOCK]
    return owners[:, ::SCALE_BLOCK] if operand == "SCALE_B" else owners


def _width(row: MatrixInstruction, operand: str) -> int:
    return BITS[row.a_type] if operand == "A" and row.sparse else row.width(operand)


def to_registers(row: MatrixInstruction, operand: str, bits: np.ndarray, abid: int = 0) -> np.ndarray:
    """Packs raw elements (blocks, rows, columns) into the operand's registers: uint32 (registers, 64)."""
    register, lane, low = np.moveaxis(places(row, operand, abid).astype(np.int64), -1, 0)
    file = np.zeros((row.registers(operand) + 1, layout.LANES), np.uint32)
    word = bits.astype(np.uint64) << low.astype(np.uint64)
    np.bitwise_or.at(file, (register, lane), (word & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    np.bitwise_or.at(file, (register + 1, lane), (word >> np.uint64(32)).astype(np.uint32))
    return file[:-1]


def from_registers(row: MatrixInstruction, operand: str, registers: np.ndarray) -> np.ndarray:
    """Unpacks registers into raw elements, unsigned integers; a byte for those below 8 bits."""
    register, lane, low = np.moveaxis(places(row, operand).astype(np.int64), -1, 0)
    file = np.concatenate([registers, np.zeros((1, layout.LANES), np.uint32)]).astype(np.uint64)
    word = file[register, lane] | file[register + 1, lane] << np.uint64(32)
    width = _width(row, operand)
    kept = word >> low.astype(np.uint64) & np.uint64((1 << width) - 1)
    return kept.astype(f"u{max(8, width) // 8}")


def instruction_of(
    row: MatrixInstruction, args: Mapping[str, Operand], mods: Mapping[str, int]
) -> Instruction:
    """Returns the decoded form of the matrix instruction with these operands."""
    return Instruction(_spec(row), row.target, "e64", args, mods, size=16 if row.scaled else 8)


def _spec(row: MatrixInstruction) -> Spec:
    return next(spec for spec in REGISTRY.specs if spec.mnemonic == row.mnemonic)


def execute(
    row: MatrixInstruction, registers: Mapping[str, np.ndarray], mods: Mapping[str, int]
) -> np.ndarray:
    """Runs the instruction's compiled handler on the registers of its sources; returns D's registers.

    registers: uint32 (count, 64) by operand. gfx908 has C and D in AccVGPRs, as it must.
    """
    accumulators = "a" if row.target == "gfx908" else "v"
    file = {name: accumulators if name in "CD" else "v" for name in PLACES}
    wave = aligned_bytes(layout.WAVE_BYTES)
    rows = {
        "v": wave[layout.VGPR : layout.AGPR].view(np.uint32).reshape(256, layout.LANES),
        "a": wave[layout.AGPR :].view(np.uint32).reshape(256, layout.LANES),
    }
    wave[: layout.SGPR + 512].view(np.uint32)[126:128] = 0xFFFFFFFF
    regs = {name: Reg(file[name], PLACES[name], len(value)) for name, value in registers.items()}
    for name, reg in regs.items():
        rows[reg.file][reg.index : reg.index + reg.count] = registers[name]
    if row.sparse:  # D is the accumulator, src2 the index register
        d = regs["C"]
        args = {"vdst": d, "src0": regs["A"], "src1": regs["B"], "src2": regs["IDX"]}
    else:
        d = Reg(accumulators, PLACES["D"], row.registers("D"))
        args = {"vdst": d, "src0": regs["A"], "src1": regs["B"], "src2": regs["C"]}
    if row.scaled:
        args |= {"scale_src0": regs["SCALE_A"], "scale_src1": regs["SCALE_B"]}
    run_handler(instruction_of(row, args, mods), wave)
    return rows[d.file][d.index : d.index + d.count].copy()


def run_handler(inst: Instruction, wave: np.ndarray) -> None:
    """Runs one instruction that neither branches nor accesses memory on a wave's bytes."""
    address, slots = handler_of(inst, Mode(), compiler())
    context = aligned_bytes(layout.CTX_BYTES)
    wave[layout.CONTEXT : layout.CONTEXT + 8].view(np.uint64)[0] = context.ctypes.data
    records = aligned_bytes(layout.RECORD * (1 + inst.size // 4)).view(np.uint32).reshape(-1, layout.SLOTS)
    records[0, 2 : 2 + len(slots)] = slots
    records[-1, :2].view(np.uint64)[0] = return_handler(compiler())
    call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
    call(wave.ctypes.data, records.ctypes.data)


def return_handler(compiler: Compiler) -> int:
    """Returns the address of a handler that only returns."""
    return compiler.address("return", _return)


def _return(module: ir.Module, name: str) -> None:
    Frame(module, name).build.ret_void()
