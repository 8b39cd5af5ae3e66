"""HardwareDescriptor and MFMAAtom: the figures of a GPU that tile derivation needs (paper, section Hardware Model).

Both take the paper's keyword lists as printed. Every other field has a default, which is MI100's (gfx908), the paper's
validation platform. `hardware/targets.py` has the figures of real boards and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from simgpu.hardware.architectures import GFX908, TARGETS
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import TargetError

CLOCKS_PER_PASS = 4  # one MFMA pass = 4 clocks [AMD Matrix Instruction Calculator 1.3.2]
WAVEFRONT = 64  # every CDNA target [AMD ROCm gpu-arch-specs]
NAMED_VGPRS = 256  # registers of each file that an instruction can name, whatever the file's size [ISA guides]
NAMED_SGPRS = 102  # s0 to s101, without VCC and the other reserved ones [ISA guides]
MOST_WORK_ITEMS = 1024  # of a workgroup [LLVM AMDGPUUsage.rst, amdgpu_flat_work_group_size]


@dataclass(frozen=True)
class MFMAAtom:
    """A matrix instruction D(m,n) += A(m,k) B(k,n).

    >>> atom = MFMAAtom(m=16, n=16, k=4, dtype_in="f32", dtype_acc="f32")
    >>> atom.mnemonic, atom.passes, atom.flops, atom.acc_registers
    ('v_mfma_f32_16x16x4f32', 8, 2048, 4)
    """

    m: int  # rows of A and D
    n: int  # columns of B and D
    k: int  # columns of A, rows of B
    dtype_in: str  # type of A and, unless `dtype_b` is given, of B
    dtype_acc: str  # type of C and D
    blocks: int = 1  # independent products
    mnemonic: str = ""  # LLVM's; "": gfx908's spelling of shape and types
    # Occupancy of the matrix unit, 4 clocks each. 0: that of the f32 rate of all CDNA targets, 64 FLOP per clock and SIMD.
    passes: int = 0
    dtype_b: str = ""  # type of B; "": A's, which is `dtype_in`

    def __post_init__(self) -> None:
        _positive("MFMAAtom", m=self.m, n=self.n, k=self.k, blocks=self.blocks)
        object.__setattr__(self, "dtype_b", self.dtype_b or self.dtype_in)
        dtype(self.dtype_in), dtype(self.dtype_b), dtype(self.dtype_acc)
        if not self.mnemonic:
            name = f"v_mfma_{self.dtype_acc}_{self.m}x{self.n}x{self.k}{self.dtype_in}"
            object.__setattr__(self, "mnemonic", name)
        if not self.passes:
            object.__setattr__(self, "passes", max(1, self.flops // (64 * CLOCKS_PER_PASS)))

    @property
    def flops(self) -> int:
        """FLOPs of one execution; a multiply-add counts as two."""
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def flops_per_clock(self) -> float:
        """FLOP per clock that one SIMD's matrix unit sustains with this atom."""
        return self.flops / (self.passes * CLOCKS_PER_PASS)

    @property
    def lane_groups(self) -> int:
        """Number of lane groups that hold different k of the same row: 4 for 16-wide atoms, 2 for 32-wide ones."""
        return max(1, WAVEFRONT // (self.m * self.blocks))

    @property
    def elements_per_lane(self) -> int:
        """Number of elements of A (and of B) that each lane supplies."""
        return self.m * self.k * self.blocks // WAVEFRONT

    @property
    def acc_registers(self) -> int:
        """Number of 32-bit accumulator registers per lane (erratum E6: m*n/64 elements, not k)."""
        return self.m * self.n * self.blocks // WAVEFRONT * dtype(self.dtype_acc).registers


@dataclass(frozen=True)
class HardwareDescriptor:
    """Essential figures of one GPU (one GCD if a package has two).

    The first seven fields are the paper's. Units are in the names: bytes, registers per lane, TB/s (10^12), TFLOPS.
    Matrix peaks follow from the atoms. Raises TargetError unless figures are positive, counts whole, wavefront_size 64 and
    unified_vgprs as the architecture has it.

    >>> from simgpu import hardware
    >>> chip = hardware.target("mi300x")
    >>> chip.num_cus, round(chip.matrix_tflops("f16")), chip.vgpr_budget(2)
    (304, 1307, (256, 256, 256))
    """

    lds_bytes: int  # per CU
    vgpr_per_thread: int  # ArchVGPRs per lane at one wave per SIMD
    wavefront_size: int  # lanes of a wave
    num_cus: int  # compute units
    hbm_bandwidth_tb: float  # peak of HBM
    peak_tflops_f32: float  # of vector instructions; tiles do not depend on it, softmax compares its bandwidth with it
    atoms: Sequence[MFMAAtom]  # dense matrix instructions

    name: str = field(default="", compare=False)  # of the board
    arch: str = "gfx908"  # LLVM's name of the target
    agpr_per_thread: int = 256  # AccVGPRs per lane at one wave per SIMD (erratum E3)
    unified_vgprs: bool = False  # one file of vgpr + agpr registers that a kernel splits, from gfx90a on
    vgpr_granule: int = 4  # VGPRs per lane are allocated in multiples of this
    max_waves_per_simd: int = 10
    simds_per_cu: int = 4
    max_workgroup_size: int = 1024  # work-items
    sgprs_per_wave: int = 102  # without VCC and the other reserved ones
    sgpr_file_per_simd: int = 800
    sgpr_granule: int = 16  # SGPRs of a wave are allocated in multiples of this
    lds_granule: int = 512  # bytes; LDS is allocated in multiples of this
    lds_banks: int = 32  # of 4 bytes each
    lds_bytes_per_clock: int = 128  # of a CU
    clock_mhz: int = 1502  # peak engine clock
    xcds: int = 1  # dies with an L2 each
    l2_bytes: int = 8 << 20  # per XCD
    l2_bytes_per_clock: int = 32 * 64  # all XCDs together
    mall_bytes: int = 0  # Infinity Cache
    mall_bandwidth_tb: float = 0.0  # Infinity Cache; 0: none, or no published figure
    hbm_bytes: int = 32 * 10**9
    assumed: str = field(default="", compare=False)  # the figures that nobody publishes for this GPU, and their origin; "": none
    scaled_atoms: Sequence[MFMAAtom] = ()  # with an E8M0 scale for each 32 k of a row of A and of a column of B

    def __post_init__(self) -> None:
        object.__setattr__(self, "atoms", tuple(self.atoms))
        object.__setattr__(self, "scaled_atoms", tuple(self.scaled_atoms))
        what = f"descriptor {self.name or self.arch}"
        counts = {name: getattr(self, name) for name in _COUNTS}
        _positive(what, **counts, hbm_bandwidth_tb=self.hbm_bandwidth_tb, peak_tflops_f32=self.peak_tflops_f32)
        counts |= {"agpr_per_thread": self.agpr_per_thread, "mall_bytes": self.mall_bytes}
        for name, value in counts.items():
            if value != int(value):
                raise TargetError(f"{what}: {name} = {value} is a count: give a whole number")
        for name in ("agpr_per_thread", "mall_bytes", "mall_bandwidth_tb"):
            if not 0 <= getattr(self, name) < inf:
                raise TargetError(f"{what}: {name} = {getattr(self, name)} is negative or infinite: give 0 for none")
        if self.wavefront_size != WAVEFRONT:
            raise TargetError(
                f"{what}: wavefront_size = {self.wavefront_size}: a CDNA wavefront has {WAVEFRONT} "
                "lanes, and so have all kernels that are emitted"
            )
        if self.max_workgroup_size > MOST_WORK_ITEMS:
            raise TargetError(f"{what}: max_workgroup_size = {self.max_workgroup_size}: a code object can have {MOST_WORK_ITEMS}")
        if self.arch in TARGETS and self.unified_vgprs == (self.arch in GFX908):
            files = "two files of VGPRs and AccVGPRs" if self.arch in GFX908 else "one file of VGPRs and AccVGPRs"
            raise TargetError(f"{what}: unified_vgprs = {self.unified_vgprs}, but {self.arch} has {files}: change it or arch")

    def dtypes(self) -> tuple[str, ...]:
        """Returns the input types that the matrix unit takes, in the order of the atoms."""
        return tuple(dict.fromkeys(atom.dtype_in for atom in self.atoms))

    def atom(self, dtype_in: str) -> MFMAAtom:
        """Returns the matrix instruction that GEMM uses for a type: fastest, then smallest m*n, then longest k.

        At one rate, smaller outputs clip finer at the edges and have the shorter dependence. LDS traffic depends on the
        warp tile, not on the atom. Raises TargetError if the target has none for the type.
        """
        rows = [atom for atom in self.atoms if atom.dtype_in == dtype(dtype_in).name]
        if not rows:
            known = f"use one of {', '.join(self.dtypes())}, or another target" if self.atoms else "give its atoms"
            raise TargetError(f"{self.name or self.arch} has no matrix instruction for {dtype_in!r}: {known}")
        return _fastest_atom(rows)

    def with_atoms_of(self, side: int, dtype_in: str) -> HardwareDescriptor:
        """Returns the descriptor for an operator whose layouts take matrix instructions of `side` x `side` only.

        That is the descriptor itself if its `atom` of the type is one, else a descriptor without the others. TargetError if none
        is left.

        >>> from simgpu import hardware
        >>> chip = hardware.target("mi300x")
        >>> chip.with_atoms_of(16, "f16") is chip, chip.with_atoms_of(32, "f16").atom("f16").mnemonic
        (True, 'v_mfma_f32_32x32x8_f16')
        """
        atom = self.atom(dtype_in)
        if (atom.m, atom.n) == (side, side):
            return self
        rows = [atom for atom in self.atoms if (atom.m, atom.n) == (side, side)]
        if not any(atom.dtype_in == atom.dtype_b == dtype(dtype_in).name for atom in rows):
            raise TargetError(
                f"{self.name or self.arch} has no {side}x{side} matrix instruction for {dtype_in!r}, which this operator needs: "
                "add one to its atoms, or use another type"
            )
        return replace(self, atoms=rows)

    def scaled_atom(self, dtype_a: str, dtype_b: str) -> MFMAAtom:
        """Returns the matrix instruction with E8M0 scales for A's and B's types, chosen as by `atom`. TargetError if none."""
        rows = [atom for atom in self.scaled_atoms if (atom.dtype_in, atom.dtype_b) == (dtype_a, dtype_b)]
        if not rows:
            raise TargetError(
                f"{self.name or self.arch} has no matrix instruction with MX scales for {dtype_a} and {dtype_b}: "
                + ("use scales none, tensor, row or block, or gfx950" if not self.scaled_atoms else "use fp8, bf8, fp6, bf6 or fp4")
            )
        return _fastest_atom(rows)

    def matrix_flops_per_clock(self, dtype_in: str) -> float:
        """Returns the FLOP per clock and CU of the matrix units for a type."""
        return self.simds_per_cu * self.atom(dtype_in).flops_per_clock

    def matrix_tflops(self, dtype_in: str) -> float:
        """Returns the dense matrix peak in TFLOPS (TOPS for i8) at the peak engine clock."""
        return self.matrix_flops_per_clock(dtype_in) * self.num_cus * self.clock_mhz * 1e-6

    @property
    def l2_bandwidth_tb(self) -> float:
        """Peak L2 read bandwidth of the whole GPU, TB/s."""
        return self.l2_bytes_per_clock * self.clock_mhz * 1e-6

    @property
    def reread_bandwidth_tb(self) -> float:
        """Peak bandwidth of the level that serves repeated reads (erratum E10): the fastest of L2, MALL and HBM, TB/s."""
        return max(self.l2_bandwidth_tb, self.mall_bandwidth_tb, self.hbm_bandwidth_tb)

    @property
    def threads_per_cu(self) -> int:
        """Most work-items that reside on a CU."""
        return self.wavefront_size * self.simds_per_cu * self.max_waves_per_simd

    @property
    def registers_per_cu(self) -> int:
        """32-bit vector registers of a CU, over all lanes, as HIP reports them: with AccVGPRs if the file is unified."""
        per_lane = self.vgpr_per_thread + (self.agpr_per_thread if self.unified_vgprs else 0)
        return self.wavefront_size * self.simds_per_cu * per_lane

    def vgpr_budget(self, waves_per_simd: int) -> tuple[int, int, int]:
        """Returns the registers per lane (arch, acc, both together) that let `waves_per_simd` waves reside on a SIMD.

        Two files: each is divided (E3, E8). Unified file: the sum is divided and neither part exceeds its own size. No part
        exceeds NAMED_VGPRS. Source of the allocation rule: observed with LLVM 19 on gfx908, gfx90a and gfx942.
        """
        def share(registers: int) -> int:
            return registers // waves_per_simd // self.vgpr_granule * self.vgpr_granule

        most_arch, most_acc = self._named_vgprs
        if not self.unified_vgprs:
            arch, acc = min(most_arch, share(self.vgpr_per_thread)), min(most_acc, share(self.agpr_per_thread))
            return arch, acc, arch + acc
        total = share(self.vgpr_per_thread + self.agpr_per_thread)
        return min(most_arch, total), min(most_acc, total), total

    @property
    def _named_vgprs(self) -> tuple[int, int]:
        """Registers per lane (arch, acc) that a kernel can name."""
        return min(self.vgpr_per_thread, NAMED_VGPRS), min(self.agpr_per_thread, NAMED_VGPRS)

    def waves_from_vgprs(self, arch: int, acc: int) -> int:
        """Returns the number of waves per SIMD that fit with `arch` + `acc` registers per lane; 0 if none does."""
        most_arch, most_acc = self._named_vgprs
        if arch > most_arch or acc > most_acc:
            return 0
        files: tuple[tuple[int, int], ...] = ((arch, self.vgpr_per_thread), (acc, self.agpr_per_thread))
        if self.unified_vgprs:
            files = ((_round_up(arch, 4) + acc, self.vgpr_per_thread + self.agpr_per_thread),)
        fitting = (capacity // _round_up(used, self.vgpr_granule) for used, capacity in files if used)
        return min([self.max_waves_per_simd, *fitting])

    def waves_from_sgprs(self, sgprs: int) -> int:
        """Returns the number of waves per SIMD that fit with `sgprs` scalar registers per wave, including VCC and the
        reserved ones."""
        return min(self.max_waves_per_simd, self.sgpr_file_per_simd // _round_up(max(sgprs, 1), self.sgpr_granule))

    def blocks_per_cu(self, arch: int, acc: int, sgprs: int, lds_bytes: int, waves: int) -> int:
        """Returns the blocks of `waves` waves that reside on a CU at once, by registers, LDS and wave slots; 0 if none does.

        A block's waves spread evenly over the CU's SIMDs. Source: AMD ROCm Compute Profiler, occupancy limiters.
        """
        by_waves = min(self.waves_from_vgprs(arch, acc), self.waves_from_sgprs(sgprs)) * self.simds_per_cu // waves
        by_lds = self.lds_bytes // max(1, self.lds_allocation(lds_bytes)) if lds_bytes else by_waves
        return min(by_waves, by_lds)

    def lds_allocation(self, nbytes: int) -> int:
        """Returns the bytes of LDS that a workgroup gets if it requests `nbytes`."""
        return _round_up(nbytes, self.lds_granule)


# Fields that are positive whole numbers.
_COUNTS = (
    "lds_bytes", "vgpr_per_thread", "wavefront_size", "num_cus", "vgpr_granule", "max_waves_per_simd", "simds_per_cu",
    "max_workgroup_size", "sgprs_per_wave", "sgpr_file_per_simd", "sgpr_granule", "lds_granule", "lds_banks", "lds_bytes_per_clock",
    "clock_mhz", "xcds", "l2_bytes", "l2_bytes_per_clock", "hbm_bytes",
)  # fmt: skip


def _fastest_atom(rows: Sequence[MFMAAtom]) -> MFMAAtom:
    return max(rows, key=lambda atom: (atom.flops_per_clock, -atom.m * atom.n, atom.k))


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _positive(what: str, **figures: float) -> None:
    for name, value in figures.items():
        if not 0 < value < inf:
            raise TargetError(f"{what}: {name} = {value} must be positive and finite; give the GPU's figure")
