"""Blocks on a compute unit, by HIP's calls: the descriptor's answer, and the largest cooperative launch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simgpu import hardware
from simgpu.hardware.descriptor import HardwareDescriptor
from tests.support.forks import hip
from tests.support.hip_compiler import program
from tests.support.kernels import KernelText, assemble

ARCHES = {"gfx908": "mi100", "gfx90a": "mi210", "gfx942": "mi300x", "gfx950": "mi355x"}
BLOCKS_OF_MANY_SCALARS = {"mi210": 28, "mi300x": 28}  # 800 SGPRs a SIMD, 112 a wave: 7 waves on each of 4


@pytest.mark.parametrize("target", BLOCKS_OF_MANY_SCALARS)
def test_scalar_registers_count_and_a_cooperative_launch_too_large_fails_at_once(target: str) -> None:
    done = hip("--target", target, program("occupancy", "gfx90a", "gfx942"))
    assert (done.stdout, done.returncode) == (f"{BLOCKS_OF_MANY_SCALARS[target]}\n", 0), done.stdout + done.stderr
    assert "a cooperative launch of" in done.stderr and "fit the GPU at once" in done.stderr


def drawn(arch: str, board: HardwareDescriptor, number: int) -> tuple[KernelText, tuple[int, int, int, int]]:
    """Draws a kernel with random resources; also returns its waves' VGPRs, AccVGPRs, SGPRs and its static LDS."""
    source = random.Random(f"{arch} {number}")
    lds = source.choice((0, source.randrange(1, board.lds_bytes + 1)))
    vectors = source.randrange(1, 257 if arch == "gfx908" else 513)
    scalars = source.randrange(1, 97)
    options = {"next_free_vgpr": vectors, "next_free_sgpr": scalars, "group_segment_fixed_size": lds}
    granule = 4 if arch == "gfx908" else 8
    vectors = -(-vectors // granule) * granule
    allocated = (vectors, vectors)
    if arch != "gfx908":
        first = options["accum_offset"] = 4 * source.randrange(1, min(256, vectors) // 4 + 1)
        allocated = (first, vectors - first)
    # VCC, FLAT_SCRATCH and XNACK_MASK follow the kernel's own; the descriptor counts SGPRs by sixteens (LLVM AMDGPUUsage)
    scalars = -(-(scalars + 6) // 16) * 16
    return KernelText(f"k{number}", "", options=options), (*allocated, scalars, lds)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_answer_is_the_descriptors(arch: str, tmp_path: Path) -> None:
    board = hardware.target(ARCHES[arch])
    kernels = [drawn(arch, board, number) for number in range(40)]
    (tmp_path / "kernels.co").write_bytes(assemble(arch, *(text for text, _ in kernels)))
    words = (program("occupancy", "gfx90a", "gfx942"), tmp_path / "kernels.co", *(text.name for text, _ in kernels))
    done = hip("--target", ARCHES[arch], *words)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    wanted = [
        [board.blocks_per_cu(*held, lds + dynamic, waves) for waves in range(1, 17)]
        for _, (*held, lds) in kernels
        for dynamic in range(0, 40000, 13001)
    ]
    assert answers == wanted
    assert len({tuple(row) for row in wanted}) > 15
