"""rocBLAS's Tensile kernels by their names: the loop that a name describes, and the cycles that tuning measured.

A row's value is 100 x GFLOPS / (SCLK x FLOP a clock and CU x CUs), with tuning's clock as SCLK (ROCm/Tensile,
tuning/automation/ConvertToEfficiency.py). So it is cycles, with no clock to guess. Traps: times include the host's overhead and
warm caches, so short rows do not characterize a kernel; tables for other boards are copies of these.
"""

from __future__ import annotations

import re

from simgpu import hardware
from simgpu.hardware import mfma
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.rows import Measurement
from simgpu.tools.validation.tile_loop import TileKernel

# Letters of a problem type: name of the matrix instruction's operands, bytes of an element, of a result.
TYPES = {
    "SB": ("f32", 4, 4), "DB": ("f64", 8, 8), "HB": ("f16", 2, 2), "HBH": ("f16", 2, 2), "HHS": ("f16", 2, 2),
    "HSS": ("f16", 2, 4), "BBS": ("bf16", 2, 2), "BSS": ("bf16", 2, 4), "I8II": ("i8", 1, 4), "4xi8II": ("i8", 1, 4),
}  # fmt: skip
# Most frequent values of settings that a name leaves out, by architecture and letters (rocBLAS b520bc83f, Tensile/Logic/asm_full,
# all kernels of matrix instructions): 1LDSBuffer, PrefetchGlobalRead, SourceSwap, StoreVectorWidth, StoreRemapVectorWidth.
LEFT_OUT = {
    ("gfx908", "HHS"): (0, 2, 0, 4, 0), ("gfx908", "SB"): (0, 2, 0, 4, 0),
    ("gfx90a", "SB"): (1, 2, 1, 1, 0), ("gfx90a", "DB"): (1, 2, 1, 2, 0), ("gfx90a", "BBS"): (0, 2, 0, 4, 0),
    ("gfx90a", "BSS"): (1, 1, 0, 4, 0), ("gfx90a", "HHS"): (1, 2, 0, 4, 0), ("gfx90a", "HSS"): (1, 1, 0, 4, 0),
    ("gfx90a", "I8II"): (0, 2, 0, 4, 4), ("gfx942", "SB"): (1, 2, 1, 4, 0), ("gfx942", "BBS"): (0, 2, 1, 4, 0),
    ("gfx942", "HHS"): (0, 2, 1, 4, 0),
}  # fmt: skip
USUAL = (0, 1, 0, 4, 0)
BOARDS = {"MI100": "mi100", "MI210": "mi250x", "MI300X": "mi300x"}
# Least cycles of a row that measures the kernel: below, the host's overhead is a part of it.
LONG = {"f32": 5e5, "f64": 2e5, "f16": 1.5e5, "bf16": 1.5e5, "i8": 1.5e5}


# Clocks of every call in addition to the kernel, in these tables; from fits of their rows (gfx908 f32 apart from the others).
OVERHEAD = {("gfx908", "f32"): 51_000}
USUAL_OVERHEAD = 15_000


def board_of(row: Measurement) -> HardwareDescriptor:
    """Returns the board of a row. Raises NotJudged if the row does not name it."""
    for said, name in BOARDS.items():
        if row.board.startswith(said):
            return hardware.target(name)
    raise NotJudged("the board, hence the number of CUs, is not known")


def kernel_of(row: Measurement, chip: HardwareDescriptor) -> TileKernel:
    """Returns the kernel that a row's name describes. Raises NotJudged if it describes none."""
    name = row.kernel.split()[-1]
    letters = re.match(r"Cijk_[A-Za-z]+_[A-Za-z]+_([A-Za-z0-9]+?)(_BH|_GB)?(?:_|$)", name)
    kind = TYPES.get(letters[1]) if letters else None
    if kind is None:
        raise NotJudged(f"type {letters[1] if letters else '?'} is not modelled")
    tile, atom = _numbers(name, "MT", 3), _numbers(name, "MI", 4)
    if tile is None or atom is None:
        raise NotJudged("not a kernel of matrix instructions, or its tile is not in the name")
    m, n, k = tile
    row_of = _instruction(kind[0], atom, chip.arch)
    wave_m, wave_n = _wave(name, m, n, row_of)
    width, columns = kind[1], max(1, abs(_number(name, "WGM") or 1))
    load = _number(name, "GRVW") or 16 // width
    loads = [max(4, min(16, width * (_number(name, f"GLVW{side}") or load))) for side in "AB"]
    tags = ("1LDSB", "PGR", "SS", "SVW", "SRVW")
    usual = LEFT_OUT.get((chip.arch, letters[1]), USUAL) if letters else USUAL
    told = (_number(name, tag) for tag in tags)
    one_buffer, ahead, swapped, together, remapped = (
        left_out if value is None else value for value, left_out in zip(told, usual, strict=True)
    )
    # With sources swapped, neighbouring lanes hold neighbouring elements; without, a lane holds four of a column (f64: one).
    stored = remapped or (max(1, together) if swapped else 1 if width == 8 else 4)
    wide = min(16, width * (_number(name, "LRVW") or max(1, 8 // width))) if width < 8 else 16
    # LDS has an operand's order in memory: if K is not contiguous, a read takes one element, unless a lane takes several rows.
    packed = "_VW" in name or chip.arch == "gfx942"
    reads = [wide if along or packed or width >= 4 else width for along in ("_Alik_" in name, "_Bljk_" in name)]
    spread = re.search(r"_GRPM(\d+)(?:p(\d+))?(?:_|$)", name)
    return TileKernel(
        row_of, width, kind[2], m, n, k, wave_m, wave_n, split=max(1, _number(name, "GSU") or 1), load_a=loads[0], load_b=loads[1],
        read_a=reads[0], read_b=reads[1], stages=1 if one_buffer else 2,
        ahead=min(2, max(1, ahead)), columns=columns, parts_ahead=_number(name, "PLR") or 1,
        each_matrix=float(f"{spread[1]}.{spread[2] or 0}") if spread else 1.0,
        stored=stored, in_rows=not swapped and not remapped,
    )  # fmt: skip


def _wave(name: str, m: int, n: int, atom: mfma.MatrixInstruction) -> tuple[int, int]:
    """Returns a wave's part of the tile; if the name has none, the one that reads least of LDS. Raises NotJudged if none fits."""
    threads, wave = _numbers(name, "WG", 3), _numbers(name, "TT", 2)
    waves = max(1, threads[0] * threads[1] * threads[2] // 64) if threads else 4
    wave_n = wave[1] if wave else 0
    if not wave_n and threads and threads[0] % atom.m == 0 and m % (threads[0] // atom.m) == 0:
        wave_n = n * (threads[0] // atom.m) // waves
    fits = [
        (m // rows, n * rows // waves) for rows in range(1, waves + 1)
        if waves % rows == 0 and m % (rows * atom.m) == 0 and n * rows % (waves * atom.n) == 0
    ]  # fmt: skip
    told = [fit for fit in fits if fit[1] == wave_n]
    if not fits:
        raise NotJudged("it is not known how its waves divide the tile, or K is divided among them")
    return min(told or fits, key=sum)


def split_is_told(row: Measurement, chip: HardwareDescriptor) -> bool:
    """True if a name has the split of K among workgroups: on MI300X it is an argument of most kernels."""
    return chip.arch != "gfx942" or "_GSU" in row.kernel


def shape_of(row: Measurement) -> tuple[int, int, int, int]:
    """Returns m, n, batch and k."""
    found = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", row.shape)}
    return found["M"], found["N"], found.get("batch", 1), found["K"]


def cycles_of(row: Measurement, kernel: TileKernel, chip: HardwareDescriptor) -> float:
    """Returns the cycles of a row, from its efficiency. Raises NotJudged for rows dominated by overhead."""
    m, n, batch, k = shape_of(row)
    told = re.search(r"cycles~(\d+)", row.notes)
    flops = kernel.atom.m * kernel.atom.n * kernel.atom.k * kernel.atom.blocks * 2 / (kernel.atom.passes * 4) * chip.simds_per_cu
    cycles = float(told[1]) if told else 2.0 * m * n * k * batch / (row.value / 100 * flops * chip.num_cus)
    kind = next(name for name in LONG if name == {1: "i8", 2: "f16", 4: "f32", 8: "f64"}[kernel.element])
    if cycles < LONG[kind]:
        raise NotJudged(f"shorter than {LONG[kind]:,.0f} cycles: the host's overhead is a part of it")
    return cycles


def overhead(kernel: TileKernel, chip: HardwareDescriptor) -> int:
    """Clocks of a call outside the kernel."""
    return OVERHEAD.get((chip.arch, kernel.atom.a_type), USUAL_OVERHEAD)


def _instruction(kind: str, atom: list[int], arch: str) -> mfma.MatrixInstruction:
    m, n, k, blocks = atom
    for row in mfma.instructions(arch):
        same = (row.m, row.n, row.k, row.blocks) == (m, n, k, blocks) and row.a_type == kind and not row.sparse and not row.scaled
        if same:
            return row
    raise NotJudged(f"no {kind} matrix instruction {m}x{n}x{k} of {blocks} blocks on {arch}")


def _numbers(name: str, key: str, count: int) -> list[int] | None:
    found = re.search(rf"_{key}(\d+(?:[x_]\d+){{{count - 1}}})(?:_|$)", name)
    return [int(part) for part in re.split("[x_]", found[1])] if found else None


def _number(name: str, key: str) -> int | None:
    found = re.search(rf"_{key}(\d+)(?:_|$)", name)
    return int(found[1]) if found else None
