"""The emitted GEMM: what it says, what it assembles to, and what it computes on the simulated GPU."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asm
from asm.gemm_operands import check
from hardware.codeobject import CodeObject
from hardware.errors import LaunchError, TargetError, UnsupportedInstruction
from operators.gemm import TiledComputation

simgpu = pytest.importorskip("simgpu")

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
TRANSPOSES = [(a, b) for a in (False, True) for b in (False, True)]
GUARD = 41  # elements before and after each view; odd, so that views are aligned to 4 bytes only


@functools.cache
def device(target):
    return simgpu.Device(target)


def padded(shape, stride, source):
    """A view of `shape` with rows `stride` apart, and the NaN-filled memory that it lies in."""
    memory = np.full(2 * GUARD + shape[0] * stride, np.nan, np.float32)
    view = memory[GUARD:][: shape[0] * stride].reshape(shape[0], stride)[:, : shape[1]]
    view[:] = source.standard_normal(shape)
    return memory, view


def gemm(m, n, k, target="gfx908", trans=(False, False), alpha=1.0, beta=0.0, pads=(0, 0, 0),
         policy="corrected", corrupt=None):  # fmt: skip
    """Runs one and returns (C, float64 result, bound on the error, what lies around C, before)."""
    source = np.random.default_rng(m * 90001 + n * 301 + k)
    shapes = ((k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n), (m, n))
    strides = [shape[1] + pad for shape, pad in zip(shapes, pads)]
    (mem_a, a), (mem_b, b), (mem_c, c) = (
        padded(shape, stride, source) for shape, stride in zip(shapes, strides)
    )
    if beta == 0:
        c[:] = np.nan
    if alpha == 0:
        a[:], b[:] = np.nan, np.inf
    lda, ldb, ldc = strides
    tree = TiledComputation(m, n, k, target, policy, "f32", *trans, alpha, beta, lda, ldb, ldc)
    kernel = asm.emit(tree)
    gpu = device(target)
    code = kernel.assemble()
    module = gpu.load(corrupt(code) if corrupt else code)
    buffers = [gpu.upload(memory) for memory in (mem_a, mem_b, mem_c)]
    launched = kernel.arguments(*(buffer.address + 4 * GUARD for buffer in buffers))
    run = module[kernel.name].launch(grid=kernel.grid, block=kernel.block, args=launched)
    after = buffers[2].download(np.float32, mem_c.shape)
    for buffer in buffers:
        gpu.free(buffer)
    wide_a, wide_b = (x.T if t else x for x, t in zip((a.astype(float), b.astype(float)), trans))
    want = np.zeros((m, n)) if alpha == 0 else alpha * (wide_a @ wide_b)
    size = np.zeros((m, n)) if alpha == 0 else abs(alpha) * (abs(wide_a) @ abs(wide_b))
    if beta:
        want, size = want + beta * c.astype(float), size + abs(beta * c.astype(float))
    got = after[GUARD:][: m * ldc].reshape(m, ldc)[:, :n]
    outside = np.ones(mem_c.shape, bool)
    outside[GUARD:][: m * ldc].reshape(m, ldc)[:, :n] = False
    untouched = (after.view(np.uint32) == mem_c.view(np.uint32))[outside].all()
    # k roundings of products of this size, and those of alpha and beta, half a unit each.
    bound = (k + 3) * 2.0**-24 * size
    return SimpleNamespace(got=got, want=want, bound=bound, untouched=untouched, run=run, kernel=kernel)


def assert_right(result):
    error = np.abs(result.got - result.want)
    assert (error <= result.bound).all(), f"largest error {np.nanmax(error)}, {np.isnan(error).sum()} NaN"
    assert result.untouched, "memory around C was written"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(*[st.integers(1, 300) | st.integers(1, 20) | st.sampled_from((16, 64, 128))] * 3),
    target=st.sampled_from(("gfx908", *TARGETS)),
    trans=st.sampled_from(TRANSPOSES),
    scales=st.sampled_from(((1.0, 0.0), (1.0, 1.0), (-0.5, 2.0), (2.0, 0.0), (0.0, 0.5))),
    pads=st.tuples(*[st.integers(0, 5)] * 3),
    policy=st.sampled_from(("corrected", "corrected", "published")),
)
def test_any_shape_validates(sizes, target, trans, scales, pads, policy):
    assert_right(gemm(*sizes, target, trans, *scales, pads, policy))


@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_large_tiles_with_edges(trans, beta):
    """Shapes whose plan has 128x128 tiles with two stages, and 128x64 ones."""
    result = gemm(2050, 1930, 37, trans=trans, beta=beta, pads=(1, 2, 3))
    assert result.kernel.plan.tile_m * result.kernel.plan.tile_n >= 128 * 64
    assert_right(result)


def test_alpha_0_reads_neither_a_nor_b():
    assert_right(gemm(40, 50, 60, alpha=0.0, beta=2.0))
    assert_right(gemm(40, 50, 60, alpha=0.0, beta=0.0))


def test_flops_and_bytes_of_a_run():
    """Whole tiles: exactly the products of the tiles; C once; nothing but the operands is read."""
    result = gemm(64, 64, 64)
    counters = result.run.counters
    assert counters["mfma_flops"] == 2 * 64**3
    assert counters["unique_write_bytes"] == counters["global_write_bytes"] == 64 * 64 * 4
    assert counters["unique_read_bytes"] == 2 * 64 * 64 * 4


def test_the_bytes_are_what_runs():
    """A v_mul_f32 of the epilogue that becomes v_add_f32 changes the result."""

    def corrupt(code):
        parsed = CodeObject.parse(code)
        (kernel,) = parsed.kernels.values()
        body = parsed.read(kernel.entry, kernel.code_size)
        listing = simgpu.disassemble(body, "gfx908")
        offset = next(o for o, text in reversed(listing) if text.startswith("v_mul_f32_e32"))
        place = code.index(body) + offset
        word = int.from_bytes(code[place : place + 4], "little")
        assert word >> 25 & 0x3F == 5  # VOP2 v_mul_f32; 1 is v_add_f32
        changed = word & ~(0x3F << 25) | 1 << 25
        return code[:place] + changed.to_bytes(4, "little") + code[place + 4 :]

    good, bad = gemm(33, 34, 35, alpha=2.0), gemm(33, 34, 35, alpha=2.0, corrupt=corrupt)
    assert_right(good)
    assert not (bad.got == good.got).all()


# -- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["corrected", "published"])
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_assemble_and_state_their_resources(target, trans, policy):
    kernel = asm.emit(TiledComputation(4096, 4096, 4096, target, policy, trans_a=trans[0], trans_b=trans[1]))
    code = CodeObject.parse(kernel.assemble())
    read, used = code.kernels[kernel.name], kernel.resources
    assert code.target == kernel.target == target
    assert read.group_segment_size == used.lds == kernel.plan.resources.lds_bytes
    assert read.agpr_count == used.agprs == kernel.plan.resources.acc_vgprs
    assert policy == "published" or used.vgprs <= kernel.plan.resources.arch_vgprs
    limits = {c.name: c.limit for c in kernel.plan.constraints}
    assert used.vgprs <= limits["ArchVGPR"] and used.vgprs + used.agprs <= limits.get("VGPR file", 512)
    assert used.sgprs <= kernel.plan.resources.sgprs
    assert [a.name for a in read.arguments] == [*"ABCmnk", "lda", "ldb", "ldc", "alpha", "beta"]
    assert len(kernel.arguments(1, 2, 3)) == len(read.arguments)


def test_the_main_loop_is_few_wide_instructions():
    """128x128x16 on gfx908: per k tile 64 matrix instructions, 4 wide loads, 8 b128 reads, 1 barrier."""
    kernel = asm.emit(TiledComputation(4096, 4096, 4096))
    body = re.split(r"k_tile_0:\n", kernel.text)[1].split("k_tile_exit_0:")[0]
    names = [line.split()[0] for line in body.splitlines() if not line.strip().startswith((";", "."))]
    count = {name: names.count(name) for name in set(names)}
    assert count["v_mfma_f32_16x16x4f32"] == 64
    assert count["buffer_load_dwordx4"] == count["ds_write_b128"] == 4
    assert count["ds_read_b128"] == 8 and count["s_barrier"] == 1
    assert not any(name.startswith(("buffer_load_dword ", "ds_read_b32")) for name in count)
    assert "s_nop" not in count
    assert len(names) < 64 + 50


def test_text_says_tree_node_coordinates_and_arrays():
    text = asm.emit(TiledComputation(256, 256, 256)).text
    nodes = ("TiledComputation", "BlockGemmNode", "WarpGemmNode", "C[0][0] += A[0] B[0]")
    for word in (*nodes, "tile (I, J)", "A staging", "accumulators", "LDS 0..", "gemm.py:"):
        assert word in text, word


def test_one_object_serves_every_shape_of_a_tile():
    texts = {asm.emit(TiledComputation(m, n, k, alpha=al, beta=be)).text
             for m, n, k, al, be in ((33, 40, 20, 1, 0), (50, 64, 30, 2, 1), (64, 33, 32, 0, 3))}  # fmt: skip
    assert len(texts) == 1


@functools.cache
def objdump():
    found = sorted(range(10, 40), reverse=True)
    return next((path for n in found if (path := shutil.which(f"llvm-objdump-{n}"))), None)


@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("target", TARGETS)
def test_our_disassembly_is_llvms(target, trans, tmp_path):
    if objdump() is None:
        pytest.skip("no llvm-objdump-N on PATH")
    kernel = asm.emit(TiledComputation(300, 200, 100, target, trans_a=trans[0], trans_b=trans[1]))
    code = kernel.assemble()
    (tmp_path / "k.co").write_bytes(code)
    command = [objdump(), "-d", "--no-show-raw-insn", f"--mcpu={target}", str(tmp_path / "k.co")]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip(f"{objdump()} does not know {target}")
    theirs = re.findall(r"^\t(.+?)\s*// [0-9A-F]+:", answer.stdout, re.M)
    parsed = CodeObject.parse(code)
    read = parsed.kernels[kernel.name]
    ours = [text for _, text in simgpu.disassemble(parsed.read(read.entry, read.code_size), target)]
    assert ours == [" ".join(text.split()) for text in theirs[: len(ours)]] and ours


# -- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("lda", 1 << 24), ("ldb", 1 << 25), ("ldc", 1 << 24)])
def test_strides_past_32_bit_offsets_are_refused(name, limit):
    plan = TiledComputation(10, 10, 10, **{name: limit}).plan
    with pytest.raises(LaunchError, match=rf"{name} = {limit}: .* {name} < {limit}"):
        check(plan)
    check(TiledComputation(10, 10, 10, **{name: limit - 1}).plan)


def test_types_and_trees_without_an_emitter_are_refused():
    with pytest.raises(UnsupportedInstruction, match="f32 only, not for f16"):
        asm.emit(TiledComputation(10, 10, 10, dtype="f16"))
    with pytest.raises(TargetError, match="no emitter for a BlockGemmNode: there are emitters for TiledComp"):
        asm.EmitVisitor().visit(TiledComputation(10, 10, 10).first())
