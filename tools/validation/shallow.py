"""A shallow-water solver on an MI300A: its kernels and time steps beside times that its tutorial publishes.

A checkout of github.com/amd/HPCTrainingExamples, at commit aaaa72d4 or later, is read in place; its kernels are compiled here and
not kept. The tutorial changes the domain, the block and the code in stages. rocprofv3 measured kernels, with waits between them in
the first stage. A step is a 500th of the time that 500 steps take on one GPU, without waits between launches. Nothing in the model
was chosen with these rows in view.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hip.options import HipSource
from simgpu.sampling.samples import sample
from simgpu.timing.predict import SampledLaunch
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source
from simgpu.tools.validation.checkouts import text_of
from simgpu.tools.validation.rows import RowLaunch

REPOSITORY, FOLDER, BOARD = "amd/HPCTrainingExamples", "Profiling-by-example/shallow-water", "mi300a"
STAGES = 4  # Runge-Kutta's, of a step
BOUNDARY = 256  # threads of a workgroup on the boundary


@dataclass(frozen=True)
class Stage:
    """A stage of the tutorial."""

    folder: str  # below FOLDER
    nx: int  # cells of a GPU
    ny: int
    block: tuple[int, int]
    kernels: dict[str, float]  # us of a kernel, by the profiler
    mcups: float = 0.0  # million cells that a stage of Runge-Kutta updates in a second; 0 if several GPUs or waits took part

    @property
    def source(self) -> str:
        """Path of its source in the checkout."""
        return f"{FOLDER}/{self.folder}/{'shallow.hip' if self.is_novice else 'shallow_mpi.hip'}"

    @property
    def is_novice(self) -> bool:
        """True if its kernels have the domain's size as constants."""
        return self.folder.startswith("novice")

    @property
    def no_waits(self) -> bool:
        """True if launches follow each other. If the host waits after each, no XCD is assumed to hold what it stored."""
        return not self.folder.endswith("0_baseline")

    @property
    def launches(self) -> dict[str, tuple[int, int]]:
        """Launches of each kernel in a step, and the arrays that it takes."""
        boundary = "apply_reflect_bc" if self.is_novice else "apply_reflect_bc_x_yphys"
        return {boundary: (STAGES, 3), "compute_rhs": (STAGES, 6), "update_stage": (STAGES - 1, 9), "final_update": (1, 15)}


# Each README's tables of rocprofv3, and MCUPS of one GPU; compute_rhs of novice/3 and 4 is in the text of 4_block_64x4.
STAGES_OF_TUTORIAL = (
    Stage("novice/0_baseline", 512, 512, (16, 16), {
        "compute_rhs": 7.978, "update_stage": 9.494, "final_update": 20.87, "apply_reflect_bc": 5.196,
    }),
    Stage("novice/2_no_device_sync", 2048, 2048, (16, 16), {}, 21204.86),
    Stage("novice/3_block_32x32", 2048, 2048, (32, 32), {"compute_rhs": 100.5e3 / 2000}, 29400.84),
    Stage("novice/4_block_64x4", 2048, 2048, (64, 4), {"compute_rhs": 93.1e3 / 2000}, 34551.31),
    Stage("advanced/0_baseline", 512, 256, (16, 16), {
        "compute_rhs": 5.411661, "update_stage": 7.564265, "final_update": 11.414996, "apply_reflect_bc_x_yphys": 5.131317,
    }),
    Stage("advanced/1_larger_domain", 8192, 8192, (16, 16), {}, 22238.83),
    Stage("advanced/2_block_32x32", 8192, 8192, (32, 32), {}, 28981.84),
    Stage("advanced/3_block_64x4", 8192, 8192, (64, 4), {}, 33946.38),
    Stage("advanced/4_vectorized_loads", 8192, 8192, (64, 4), {}, 36113.05),
    Stage("advanced/4_vectorized_loads", 8192, 2048, (64, 4), {
        "compute_rhs": 177.419147, "update_stage": 214.350975, "final_update": 438.409882, "apply_reflect_bc_x_yphys": 7.444953,
    }),
)  # fmt: skip


@dataclass(frozen=True)
class MeasuredSolver:
    """A published time."""

    stage: Stage
    kernel: str  # "" for a step
    us: float

    @property
    def name(self) -> str:
        """Names the kernel, the stage and the domain."""
        stage = self.stage
        return f"{self.kernel or 'step'} {stage.folder} {stage.nx}x{stage.ny}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return f"{'kernel' if self.kernel else 'step'} {self.stage.nx}"


def rows() -> Iterator[MeasuredSolver]:
    """Yields the published times."""
    for stage in STAGES_OF_TUTORIAL:
        yield from (MeasuredSolver(stage, kernel, us) for kernel, us in stage.kernels.items())
        if stage.mcups:
            yield MeasuredSolver(stage, "", STAGES * stage.nx * stage.ny / stage.mcups)


def sampled_solver(checkout: Path, row: MeasuredSolver) -> list[RowLaunch]:
    """Compiles and samples a row's launches. Each kernel loads what others stored."""
    if row.kernel:
        return [RowLaunch(1, _sample_kernel(checkout, row.stage, row.kernel), "stored" if row.stage.no_waits else "last")]
    launches = row.stage.launches.items()
    return [RowLaunch(times, _sample_kernel(checkout, row.stage, name), "stored") for name, (times, _) in launches]


def _sample_kernel(checkout: Path, stage: Stage, name: str) -> SampledLaunch:
    import simgpu

    device = simgpu.Device(BOARD, threads=1)
    kernel = device.load(_code(checkout, stage.source, name, device.arch))[name]
    (width, height), pitch = stage.block, stage.nx + 2
    args: list[object] = [device.alloc(4 * pitch * (stage.ny + 2)) for _ in range(stage.launches[name][1])]
    args += [0.1] if "update" in name else []  # the time of a step
    args += [pitch] if stage.is_novice else [pitch, stage.nx, stage.ny]
    if "update" in name or name == "compute_rhs":
        grid = -(-stage.nx // width), -(-stage.ny // height)
        return sample(kernel, Geometry.of(grid, stage.block), args, restore=False)
    args += [] if stage.is_novice else [1, stage.nx == stage.ny]  # rank 0 has the bottom, and the top if there is no other
    return sample(kernel, Geometry.of(-(-max(stage.nx, stage.ny) // BOUNDARY), BOUNDARY), args, restore=False)


@cache
def _code(checkout: Path, source: str, name: str, arch: str) -> bytes:
    """Compiles a kernel of the checkout. Raises UsageError with the compiler's message."""
    text = text_of(checkout / source, REPOSITORY)
    found = re.search(rf"^__global__ [^\n]*\bvoid {name}\(.*?^}}", text, re.M | re.S)
    if found is None:
        raise UsageError(f"{checkout / source}: no kernel {name}; give a checkout of github.com/{REPOSITORY}")
    needed = re.findall(r"^(?:constexpr [^\n]*;|__host__ __device__ inline int IDX.*?\})", text, re.M | re.S)
    code, log = compile_source(HipSource("\n".join([*needed, f'extern "C" {found[0]}', ""]), arch))
    if code is None:
        raise UsageError(f"{name}: {log}")
    return code
