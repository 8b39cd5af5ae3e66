"""Assumptions and measurements of the paper. Every derived cell is a function of these and of the code."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from simgpu.hardware import target
from simgpu.hardware.descriptor import HardwareDescriptor


@dataclass(frozen=True)
class Table2Row:
    """A row of the paper's Table 2."""

    d: int
    tile_q: int
    printed: str


@dataclass(frozen=True)
class PaperTimes:
    """A row of the paper's Table 3: milliseconds that it measured."""

    length: int
    fused: float
    unfused: float
    printed: str  # the paper's speed-up


TABLE_2 = (
    Table2Row(64, 48, "214, fits"), Table2Row(64, 64, "280, does not"), Table2Row(128, 32, "180, fits"),
    Table2Row(128, 48, "262, does not"),
)  # fmt: skip
TABLE_3 = (
    PaperTimes(4096, 27.9, 26.6, "0.95x"), PaperTimes(8192, 83.5, 104.6, "1.25x"), PaperTimes(16384, 279.3, 418.1, "1.50x"),
    PaperTimes(32768, 991.1, 1666.6, "1.68x"),
)  # fmt: skip


@dataclass(frozen=True)
class Givens:
    """Machines, problem sizes and measurements; sizes in elements, rates in TFLOPS.

    The first two descriptors are the paper's, the others those of the boards that they resemble.
    """

    gpu_a: HardwareDescriptor = field(default_factory=partial(target, "gpu_a"))
    gpu_b: HardwareDescriptor = field(default_factory=partial(target, "gpu_b"))
    mi100: HardwareDescriptor = field(default_factory=partial(target, "mi100"))
    mi300x: HardwareDescriptor = field(default_factory=partial(target, "mi300x"))
    mi250x: HardwareDescriptor = field(default_factory=partial(target, "mi250x"))
    instruction: str = "v_mfma_f32_16x16x4f32"
    gemm_tflops: float = 12.3  # measured
    side: int = 4096  # of the product in Figure 1
    small_side: int = 1024  # of a product with fewer tiles than CUs; ours, the paper names none
    small_length: int = 2048  # of a head with fewer Q tiles than CUs; also ours
    length: int = 16384
    longer: int = 32768
    d: int = 128
    table_2: tuple[Table2Row, ...] = TABLE_2
    table_3: tuple[PaperTimes, ...] = TABLE_3
    image: int = 224  # an RGB image's side; ours
    filter_side: int = 3
    pixels: tuple[int, int] = (16, 16)
    replication: int = 2  # 3 channels become 12
    softmax: int = 512
    floor: float = float("-inf")  # m's first value in Algorithm 1
