"""Descriptors and target rows compared with AMD's published peaks, the paper's listing and the instruction oracle."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from simgpu import hardware
from simgpu.hardware import HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import dtype, numpy_dtype
from simgpu.hardware.errors import SimError, TargetError
from tests.support.places import ROOT, SHARED

ORACLE = SHARED / "oracles" / "mfma_layouts.json.gz"
BOARDS = ("mi100", "mi210", "mi250x", "mi300a", "mi300x", "mi325x", "mi350x", "mi355x")


def test_names() -> None:
    assert hardware.targets() == (*BOARDS, "gpu_a", "gpu_b")
    for arch, board in (("gfx908", "mi100"), ("GFX90A", "mi210"), ("gfx942", "MI300X"), ("gfx950", "mi355x")):
        assert hardware.target(arch) is hardware.target(board)


@pytest.mark.parametrize("name", ["mi999", "", None, 3])
def test_unknown_target_lists_what_there_is(name: object) -> None:
    with pytest.raises(TargetError) as error:
        hardware.target(name)  # type: ignore[arg-type]
    assert "mi300x" in str(error.value) and "gfx950" in str(error.value) and "\n" not in str(error.value)
    assert isinstance(error.value, SimError)


def test_paper_descriptors_as_printed() -> None:
    atom = MFMAAtom(m=16, n=16, k=4, dtype_in="f32", dtype_acc="f32")
    gpu_a = HardwareDescriptor(
        lds_bytes=64 * 1024, vgpr_per_thread=256, wavefront_size=64, num_cus=120,
        hbm_bandwidth_tb=1.2, peak_tflops_f32=11.5, atoms=[atom],
    )
    gpu_b = HardwareDescriptor(
        lds_bytes=64 * 1024, vgpr_per_thread=256, wavefront_size=64, num_cus=304,
        hbm_bandwidth_tb=5.3, peak_tflops_f32=383.0, atoms=[atom],
    )
    assert hardware.target("gpu_a") == gpu_a
    assert hardware.target("gpu_b") == gpu_b
    assert hash(gpu_a) != hash(gpu_b)


def test_borrowed_figures_are_said() -> None:
    """Takes figures that the paper lacks (clock, L2, AccVGPRs) from MI100, for gpu_b of MI300X's size, too."""
    assert {name for name in hardware.targets() if hardware.target(name).assumed} == {"gpu_a", "gpu_b"}
    mi100, mi300x = hardware.target("mi100"), hardware.target("mi300x")
    for gpu in (hardware.target("gpu_a"), hardware.target("gpu_b")):
        for name in ("clock_mhz", "l2_bytes", "l2_bytes_per_clock", "agpr_per_thread"):
            assert getattr(gpu, name) == getattr(mi100, name)
        assert all(word in gpu.assumed for word in ("clock", "L2", "AccVGPR", "MI100"))
    assert hardware.target("gpu_b").num_cus == mi300x.num_cus and hardware.target("gpu_b").clock_mhz != mi300x.clock_mhz


# AMD's own tables (MI100, MI250, MI300 architecture pages of the ROCm docs; datasheets for MI210 and CDNA4), TFLOPS.
PUBLISHED = [
    ("mi100", "f32", 46.1), ("mi100", "f16", 184.6), ("mi100", "bf16", 92.3), ("mi100", "i8", 184.6),
    ("mi210", "f32", 45.3), ("mi210", "f64", 45.3), ("mi210", "f16", 181.0), ("mi210", "bf16", 181.0),
    ("mi250x", "f16", 191.5), ("mi250x", "f64", 47.9),
    ("mi300a", "f16", 980.6), ("mi300a", "fp8", 1961.2), ("mi300a", "f64", 122.6),
    ("mi300x", "f32", 163.4), ("mi300x", "f64", 163.4), ("mi300x", "xf32", 653.7),
    ("mi300x", "bf16", 1307.4), ("mi300x", "fp8", 2614.9),
    ("mi325x", "i8", 2614.9),
    ("mi355x", "f64", 78.6), ("mi355x", "f32", 157.3), ("mi355x", "f16", 2516.6),
    ("mi355x", "fp8", 5033.2), ("mi355x", "i8", 5033.2),
    ("mi350x", "f16", 2306.9),
]


@pytest.mark.parametrize(("board", "kind", "tflops"), PUBLISHED)
def test_matrix_peak_follows_from_passes_cus_and_clock(board: str, kind: str, tflops: float) -> None:
    assert hardware.target(board).matrix_tflops(kind) == pytest.approx(tflops, rel=1e-3)


@pytest.mark.skipif(not ORACLE.exists(), reason="the instruction oracle is not here")
@pytest.mark.parametrize("board", BOARDS)
def test_atoms_against_calculator(board: str) -> None:
    descriptor = hardware.target(board)
    rows = json.loads(gzip.decompress(ORACLE.read_bytes()))["targets"][descriptor.arch]
    names = {"f32": "fp32", "f64": "fp64", "xf32": "xf32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "i32": "int32"}
    if descriptor.arch == "gfx942":
        names |= {"fp8": "amd_fp8", "bf8": "amd_bf8"}
    else:
        names |= {"fp8": "fp8", "bf8": "bf8"}
    for atom in descriptor.atoms:
        suffix = ":fp8" if atom.mnemonic.endswith("f8f6f4") else ""
        row = rows[atom.mnemonic + suffix]
        assert (atom.m, atom.n, atom.k, atom.blocks, atom.passes) == tuple(row[x] for x in ("m", "n", "k", "blocks", "passes"))
        assert names[atom.dtype_acc] == row["cd_type"]
        if not suffix:
            assert names[atom.dtype_in] == row["a_type"] == row["b_type"]
        assert atom.acc_registers == row["vgprs"]["CD"]
        assert atom.elements_per_lane * dtype(atom.dtype_in).bits == 32 * row["vgprs"]["A"]


def test_every_single_block_rate_is_reached() -> None:
    assert hardware.target("mi210").atom("bf16").mnemonic == "v_mfma_f32_16x16x16bf16_1k"
    assert hardware.target("mi355x").atom("f16").mnemonic == "v_mfma_f32_16x16x32_f16"
    assert hardware.target("mi100").atom("f32").mnemonic == "v_mfma_f32_16x16x4f32"


def test_missing_type_names_the_others() -> None:
    with pytest.raises(TargetError, match=r"f64.*f32, f16, i8, bf16"):
        hardware.target("mi100").atom("f64")
    with pytest.raises(TargetError, match="unknown data type 'f31'"):
        hardware.target("mi100").atom("f31")


@pytest.mark.parametrize(("arch", "acc", "waves"), [(100, 0, 2), (64, 64, 4), (65, 0, 3), (128, 128, 2), (257, 0, 0), (4, 0, 10)])
def test_waves_gfx908(arch: int, acc: int, waves: int) -> None:
    assert hardware.target("gfx908").waves_from_vgprs(arch, acc) == waves


@pytest.mark.parametrize(
    ("arch", "acc", "waves"), [(128, 128, 2), (64, 64, 4), (65, 64, 3), (256, 256, 1), (32, 0, 8), (10, 300, 0)]
)
def test_waves_gfx90a(arch: int, acc: int, waves: int) -> None:
    assert hardware.target("gfx90a").waves_from_vgprs(arch, acc) == waves


@pytest.mark.parametrize("board", hardware.targets())
def test_register_budget_is_the_inverse_of_waves(board: str) -> None:
    d = hardware.target(board)
    for waves in range(1, d.max_waves_per_simd + 1):
        arch, acc, total = d.vgpr_budget(waves)
        arch_part = arch if not d.unified_vgprs else min(arch, total // 2)
        acc_part = acc if not d.unified_vgprs else min(acc, total // 2 // 8 * 8)
        assert d.waves_from_vgprs(arch_part // 4 * 4, acc_part) >= waves


@pytest.mark.parametrize("field", ["lds_bytes", "num_cus", "vgpr_per_thread"])
def test_descriptor_rejects_nonsense(field: str) -> None:
    figures = dict(
        lds_bytes=65536, vgpr_per_thread=256, wavefront_size=64, num_cus=1, hbm_bandwidth_tb=1.0, peak_tflops_f32=1.0,
        atoms=[MFMAAtom(16, 16, 4, "f32", "f32")],
    )
    with pytest.raises(TargetError, match=field):
        HardwareDescriptor(**{**figures, field: 0})  # type: ignore[arg-type]


def test_fp8_kind_follows_the_target() -> None:
    assert numpy_dtype("fp8", "gfx942").name == "float8_e4m3fnuz"
    assert numpy_dtype("fp8", "gfx950").name == "float8_e4m3fn"
    names = ("f64", "f32", "xf32", "f16", "bf16", "bf8", "i8", "i32")
    assert all(numpy_dtype(name).itemsize == dtype(name).bytes for name in names)


def test_import_is_light() -> None:
    code = "import sys, simgpu.hardware; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_wavefront_has_64_lanes() -> None:
    with pytest.raises(TargetError, match="64 lanes"):
        replace(hardware.target("mi300x"), wavefront_size=32)
