"""Paper's two attention kernels, MFMA+FMA and MFMA+MFMA through LDS: results, and erratum E17 about the index."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm, hardware
from simgpu.asm.attention.paper_values import MatrixValues
from simgpu.asm.builder import toolchain
from simgpu.asm.builder.instruction import Instr
from simgpu.hardware import target as find_target
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, ResourceError, UnsupportedInstruction
from simgpu.operators import AttentionProblem, FusedAttention, UnfusedAttention, plan_attention, reference
from simgpu.operators.attention.paper import registers as paper
from simgpu.tools.tables.kernel_use import linked_use
from simgpu.tools.tables.read_back import read_back
from tests.support.exhaustive import examples, left_out, one_in

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def published(p, target, values="mfma", cus=1):
    """Returns the tree of a kernel. On one CU, no tile is shrunk for occupancy."""
    return FusedAttention(p, replace(find_target(target), num_cus=cus), "published", values)


def attention(p, target, values, kernel=None, check=False, cus=1):
    """Returns True if every element is within its bound, and the run."""
    source = np.random.default_rng(p.lq + 7 * p.lk)
    gpu = simgpu.Device(target, check=check)
    kind = numpy_dtype(p.dtype, gpu.arch)
    arrays = [source.standard_normal(shape).astype(kind) for shape in (p.q_shape, p.k_shape, p.v_shape)]
    kernel = kernel or asm.emit(published(p, target, values, cus))
    buffers = [gpu.upload(x) for x in (*arrays, np.full(p.q_shape, np.nan, np.float32))]
    (run,) = asm.launch(kernel, gpu, *buffers)
    error = np.abs(buffers[3].download(np.float32, p.q_shape) - reference.attention(p, *arrays))
    return (error <= reference.attention_error_bound(p, *arrays, arch=gpu.arch)).all(), run


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 70), st.integers(1, 200), st.sampled_from((16, 32, 48, 64, 80, 96, 112, 128)), st.sampled_from(((1, 1), (4, 2))),
    st.booleans(), st.none() | st.integers(1, 60), st.sampled_from(TARGETS), st.sampled_from(("mfma", "fma")),
    st.sampled_from(("f32", "f16", "bf16")), st.sampled_from((1, 1, 120)),
)  # fmt: skip
def test_any_shape_validates(lq, lk, d, heads, causal, window, target, values, dtype, cus):
    assert attention(AttentionProblem(lq, lk, d, *heads, 1, causal, window, dtype=dtype), target, values, cus=cus)[0]


@pytest.mark.parametrize(("d", "dtype", "target", "values"), [(80, "f32", "gfx908", "fma"), (48, "bf16", "gfx950", "mfma")])
def test_checked_mode_finds_nothing(d, dtype, target, values):
    right, run = attention(AttentionProblem(15, 50, d, 1, 1, 1, True, 30, dtype=dtype), target, values, check=True)
    assert right and not run.findings


@pytest.mark.parametrize(("target", "d"), [("gfx908", 80), left_out("gfx90a", 96), ("gfx950", 64)])
def test_vector_kernel_where_published_tiles_do_not_fit(target, d):
    """With O in whole columns a lane, E and S leave no room for the published number of keys."""
    p = AttentionProblem(50, 90, d)
    fitted = published(p, target, "fma").plan
    printed = plan_attention(p, fitted.descriptor, "published")
    assert fitted.tile_Q == printed.tile_Q > 16 and 16 <= fitted.tile_KV < printed.tile_KV
    assert attention(p, target, "fma")[0]


@pytest.mark.parametrize(("d", "dtype", "target", "values"), [
    (272, "f16", "gfx908", "fma"), (320, "f32", "gfx90a", "fma"), (512, "bf16", "gfx950", "mfma"),
])  # fmt: skip
def test_wide_heads(d, dtype, target, values):
    """Past 256, a lane's columns of O need more than one pass over E. In one pass they overwrote each other's registers."""
    assert attention(AttentionProblem(20, 70, d, dtype=dtype), target, values)[0]


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(st.integers(1, 32), st.sampled_from(TARGETS), st.sampled_from(("mfma", "fma")), st.sampled_from(("f32", "f16", "bf16")))
def test_the_code_object_takes_what_the_plan_says(atoms, target, values, dtype):
    tree = published(AttentionProblem(900, 900, 16 * atoms, 4, 2, dtype=dtype), target, values)
    if not tree.derivation.feasible:
        assert atoms > 24 and tree.derivation.binding.name == "ArchVGPR"
        return
    kernel, plan = asm.emit(tree), tree.plan.resources
    named = [r for i in kernel.items if isinstance(i, Instr) for r in i.registers()]
    used = {file: max((r.index + r.count for r in named if r.file == file), default=0) for file in "va"}
    assert used["v"] <= plan.arch_vgprs < used["v"] + 4 and used["a"] == plan.acc_vgprs
    assert all(row.equal for row in read_back(kernel, linked_use(kernel)))


@given(st.integers(1, 32), st.sampled_from(TARGETS), st.sampled_from(("mfma", "fma")), st.sampled_from(("f32", "f16")))
def test_no_larger_tile_fits(atoms, target, values, dtype):
    """Compares with a search: with these queries no more of the published keys fit, and with more queries not even 16."""
    p = AttentionProblem(900, 900, 16 * atoms, dtype=dtype)
    plan = published(p, target, values).derivation
    d = plan.descriptor
    printed = plan_attention(p, d, "published")

    def fits(queries, keys):
        ranges = paper.registers(p.d, dtype, d, values, queries, keys)
        arch, acc = (sum(r.count for r in ranges if r.file == file) for file in ("arch", "acc"))
        nbytes = sum(array.nbytes for array in paper.lds(p.d, dtype, values, queries, keys))
        return d.waves_from_vgprs(arch, acc) >= 1 and nbytes <= d.lds_bytes

    if not plan.feasible:
        assert not fits(16, 16)
        return
    assert fits(plan.tile_Q, plan.tile_KV)
    assert plan.tile_KV == printed.tile_KV or not fits(plan.tile_Q, plan.tile_KV + 32)  # the far addresses may exclude 16 more
    assert plan.tile_Q == printed.tile_Q or not fits(plan.tile_Q + 16, 32)


def test_only_halves_for_matrix_instructions_need_constants_in_sgprs():
    d = hardware.target("mi300x")
    f32, f16, bf16 = (sum(row.count for row in paper.scalars(dtype, d, "mfma")) for dtype in ("f32", "f16", "bf16"))
    assert paper.scalars("f32", d, "mfma") == paper.scalars("f16", d, "fma") and (f16 - f32, bf16 - f32) == (2, 4)


@pytest.mark.parametrize(("target", "dtype"), one_in(2, list(zip(TARGETS, ("f32", "bf16", "f16", "bf16")))))
def test_llvm_has_no_warning(tmp_path, target, dtype):
    (tool, *_) = toolchain.candidates()
    p = AttentionProblem(70, 90, 80, causal=True, window=9, dtype=dtype)
    for tree in (*(published(p, target, values) for values in ("mfma", "fma")), UnfusedAttention(p, target)):
        for step in asm.emit(tree).steps:
            (tmp_path / "k.s").write_text(step.text)
            command = [*tool.clang, *toolchain.CLANG_OPTIONS, "-Wall", f"-mcpu={target}", "k.s", "-o", "k.o"]
            answer = toolchain._run(command, str(tmp_path))
            assert answer.returncode == 0 and "k.s:" not in answer.stderr, answer.stderr


def bits(p, target, values):
    """Returns R of a kernel, as words, and its plan."""
    source, gpu = np.random.default_rng(p.lq + 7 * p.lk), simgpu.Device(target)
    arrays = [source.standard_normal(shape).astype(np.float32) for shape in (p.q_shape, p.k_shape, p.v_shape)]
    tree = published(p, target, values)
    buffers = [gpu.upload(x) for x in (*arrays, np.full(p.q_shape, np.nan, np.float32))]
    asm.launch(asm.emit(tree), gpu, *buffers)
    return buffers[3].download(np.uint32, p.q_shape), tree.plan


AGREE = [*product(TARGETS, ((64, 192, 64), (50, 130, 128), (33, 200, 32))), ("gfx950", (20, 700, 32))]


@pytest.mark.covering(1)
@pytest.mark.parametrize("mask", [{}, {"causal": True}])
@pytest.mark.parametrize(("target", "shape"), AGREE)
def test_both_kernels_agree_bit_for_bit(target, shape, mask):
    """Compares MFMA+FMA with MFMA+MFMA. The paper: "identical results confirm the transposed layout is correct".

    Both have the same steps at these shapes. A sum over keys grows in one order, by one or four keys an instruction.
    """
    p = AttentionProblem(*shape, **mask)
    (matrix, one), (vector, other) = (bits(p, target, values) for values in ("mfma", "fma"))
    assert one.tile_KV == other.tile_KV or p.lk <= min(one.tile_KV, other.tile_KV)
    assert (matrix == vector).all() and len(np.unique(matrix)) > matrix.size // 2


@pytest.mark.slow
def test_other_steps_give_other_bits():
    """Proves that agreement is not trivial: steps of 256 and 240 keys round differently."""
    p = AttentionProblem(20, 700, 32)
    (matrix, one), (vector, other) = (bits(p, "gfx908", values) for values in ("mfma", "fma"))
    assert one.tile_KV > other.tile_KV and (matrix != vector).any()


def test_e_passes_through_lds_once_each_way():
    """In each step of 32 queries and 64 keys, E^T is written and read, 8 KB (E15, E16), next to K and V."""
    runs = [attention(AttentionProblem(32, lk, 128), "gfx908", "mfma")[1].counters for lk in (64, 128)]
    written, read = (runs[1][f"lds_{way}_bytes"] - runs[0][f"lds_{way}_bytes"] for way in ("write", "read"))
    tile, e = 64 * 128 * 4, 32 * 64 * 4
    assert written == 2 * tile + e and read == 2 * tile + e


def test_the_printed_index_is_wrong(monkeypatch):
    """Erratum E17: [row_in_m·tQ + ks·m + col_group] instead of [(ks·k + col_group)·tQ + row_in_m] gives wrong values."""
    p = AttentionProblem(32, 64, 128)
    assert attention(p, "gfx908", "mfma")[0]

    def printed(self, step):
        for q in range(self.nq):
            self.k.ds_read_b32(self._weights(step, q), self.e_write, offset=(16 * step + 16 * q) % 64 * 4)

    monkeypatch.setattr(MatrixValues, "_read_weights", printed)
    assert not attention(p, "gfx908", "mfma")[0]


def test_what_cannot_be():
    with pytest.raises(UnsupportedInstruction, match="not for f64"):
        asm.emit(FusedAttention(AttentionProblem(64, 64, 128, dtype="f64"), "gfx90a", "published"))
    with pytest.raises(LaunchError, match="unknown values 'fma': use one of mfma"):
        FusedAttention(AttentionProblem(64, 64, 128), values="fma")
    with pytest.raises(ResourceError, match=r"ArchVGPR needs .*lower d"):
        asm.emit(published(AttentionProblem(64, 64, 512), "gfx942", "fma"))
    kernel = asm.emit(published(AttentionProblem(64, 64, 128), "gfx908"))
    broken = replace(kernel, text=kernel.text.replace("row_half_mirror", "row_mirror"))
    assert not attention(AttentionProblem(64, 64, 128), "gfx908", "mfma", broken)[0]
