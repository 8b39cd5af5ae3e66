"""The paper's two attention kernels, MFMA+FMA and MFMA+MFMA through LDS: results, and what erratum E17 says of the index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asm
from asm.attention_paper_values import MatrixValues
from hardware.dtypes import numpy_dtype
from hardware.errors import LaunchError, ResourceError, UnsupportedInstruction
from operators import AttentionProblem, FusedAttention, reference

simgpu = pytest.importorskip("simgpu")


def attention(p, target, values, kernel=None):
    """Whether every element is in its bound, and the run."""
    source = np.random.default_rng(p.lq + 7 * p.lk)
    gpu = simgpu.Device(target)
    kind = numpy_dtype(p.dtype, gpu.arch)
    arrays = [source.standard_normal(shape).astype(kind) for shape in (p.q_shape, p.kv_shape, p.kv_shape)]
    kernel = kernel or asm.emit(FusedAttention(p, target, "published", values))
    buffers = [gpu.upload(x) for x in (*arrays, np.full(p.q_shape, np.nan, np.float32))]
    (run,) = asm.launch(kernel, gpu, *buffers)
    error = np.abs(buffers[3].download(np.float32, p.q_shape) - reference.attention(p, *arrays))
    return (error <= reference.attention_error_bound(p, *arrays, arch=gpu.arch)).all(), run


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 70), st.integers(1, 200), st.sampled_from((64, 80, 128)), st.sampled_from(((1, 1), (4, 2))), st.booleans(),
    st.none() | st.integers(1, 60), st.sampled_from(("gfx908", "gfx90a", "gfx942", "gfx950")), st.sampled_from(("mfma", "fma")),
    st.sampled_from(("f32", "f16", "bf16")),
)  # fmt: skip
def test_any_shape_validates(lq, lk, d, heads, causal, window, target, values, dtype):
    try:
        right, _ = attention(AttentionProblem(lq, lk, d, *heads, 1, causal, window, dtype=dtype), target, values)
    except ResourceError:
        # The published tiles of 160 KB of LDS leave O no room beside S; nor do those of a d that O pads to whole shares of its lanes.
        assert values == "fma" and (target == "gfx950" or d == 80)
        return
    assert right


def test_e_passes_through_lds_once_each_way():
    """Per step of 32 queries and 64 keys: E^T 8 KB written and read (E15, E16), beside K and V."""
    runs = [attention(AttentionProblem(32, lk, 128), "gfx908", "mfma")[1].counters for lk in (64, 128)]
    written, read = (runs[1][f"lds_{way}_bytes"] - runs[0][f"lds_{way}_bytes"] for way in ("write", "read"))
    tile, e = 64 * 128 * 4, 32 * 64 * 4
    assert written == 2 * tile + e and read == 2 * tile + e


def test_the_printed_index_is_wrong(monkeypatch):
    """Erratum E17: [row_in_m·tQ + ks·m + col_group] in place of [(ks·k + col_group)·tQ + row_in_m] gives wrong values."""
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
    with pytest.raises(ResourceError, match="registers left for O"):
        asm.emit(FusedAttention(AttentionProblem(64, 64, 64), "gfx950", "published", "fma"))
    kernel = asm.emit(FusedAttention(AttentionProblem(64, 64, 128), policy="published"))
    broken = replace(kernel, text=kernel.text.replace("row_ror:8", "row_ror:4"))
    assert not attention(AttentionProblem(64, 64, 128), "gfx908", "mfma", broken)[0]
