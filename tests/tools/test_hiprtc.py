"""HIP source compiled without ROCm: functions of the device library are those of C, whatever the board."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.hip.options import Source
from simgpu.tools.shared import hiprtc
from simgpu.tools.shared.hiprtc import compile_source, device_library
from tests.support.device_library import VERSIONS

# Limits in units in the last place of float: OpenCL C 3.0, table "ULP values for single precision built-in math functions";
# of double the same, which ROCm's device library keeps too (doc/OCML.md).
ULP = {
    "sin": 4, "cos": 4, "tan": 5, "exp": 3, "exp2": 3, "log": 3, "log2": 3, "log10": 3, "tanh": 5, "sinh": 4, "cosh": 4, "asin": 4,
    "acos": 4, "atan": 5, "cbrt": 2, "expm1": 3, "log1p": 2, "sqrt": 3, "floor": 0, "fabs": 0,
}  # fmt: skip
ULP2 = {"pow": (16, np.power), "atan2": (6, np.arctan2), "fmod": (0, np.fmod), "hypot": (4, np.hypot), "fmin": (0, np.fmin)}
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
LIBRARY = device_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="no ocml.bc: neither ROCm nor the triton wheel is installed")


def built(source: str, target: str, *options: str) -> bytes:
    """The code object; skips the test without clang."""
    code, log = compile_source(Source(source, target, options, file="k.hip"))
    if code is None and "no clang" in log:
        pytest.skip(log)
    assert code is not None, log
    return code


def math(kind: str) -> str:
    """A kernel for each function of x, and of x and y."""
    suffix = "f" if kind == "float" else ""
    head, body = "extern \"C\" __global__ void", "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;"
    one = (f"{head} {n}_k(const {kind} *x, {kind} *z) {{ {body} z[i] = {n}{suffix}(x[i]); }}" for n in ULP)
    arguments = f"(const {kind} *x, const {kind} *y, {kind} *z)"
    two = (f"{head} {n}_k{arguments} {{ {body} z[i] = {n}{suffix}(x[i], y[i]); }}" for n in ULP2)
    return "\n".join([*one, *two])


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """Units in the last place between results and those of a wider type; NaN and infinity are to be the same."""
    with np.errstate(over="ignore"):
        rounded = want.astype(got.dtype)
    special = ~np.isfinite(rounded)
    assert np.array_equal(got[special], rounded[special], equal_nan=True)
    got, want = got[~special].astype(want.dtype), want[~special]
    return float(np.max(np.abs(got - want) / np.spacing(np.abs(rounded[~special]))))


@needs_library
@pytest.mark.parametrize("target", VERSIONS)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_math_is_that_of_c(target: str, kind: str) -> None:
    gpu = simgpu.Device(target)
    module = gpu.load(built(math(kind), target))
    rng, dtype, wide = np.random.default_rng(0), np.dtype("f4" if kind == "float" else "f8"), np.float64
    if kind == "double":
        wide = np.longdouble
        if np.finfo(wide).nmant < 60:
            pytest.skip("the host has no type wider than double to compare with")
    n = 1024
    x = np.concatenate([rng.uniform(-1, 1, n // 2), rng.uniform(-80, 80, n // 4), rng.standard_cauchy(n // 4) * 1e3]).astype(dtype)
    x[:4] = 0, np.inf, -np.inf, np.nan
    y = rng.uniform(-3, 3, n).astype(dtype)
    for name in [*ULP, *ULP2]:
        limit, function = ULP2[name] if name in ULP2 else (ULP[name], getattr(np, NUMPY.get(name, name)))
        operands = [x, y] if name in ULP2 else [x]
        out = gpu.alloc(x.nbytes)
        module[f"{name}_k"].launch(grid=n // 256, block=256, args=[*map(gpu.upload, operands), out])
        with np.errstate(all="ignore"):
            want = function(*(operand.astype(wide) for operand in operands))
        assert distance(out.download(dtype), want) <= limit + 0.5, name


@needs_library
def test_integers_are_taken_as_double_and_floats_stay_float() -> None:
    source = """extern "C" __global__ void k(double *z) {
        static_assert(sizeof(sin(1.0f)) == 4 && sizeof(sin(1)) == 8 && sizeof(pow(2.0f, 3)) == 8 && sizeof(min(1.0f, 2.0f)) == 4);
        z[0] = sin(1), z[1] = pow(3, 2), z[2] = min(0.25f, 0.5f), z[3] = max(3u, 2u), z[4] = fma(2.0f, 3.0f, 1.0f);
        z[5] = abs(-2.5f), sincos(1.0, &z[6], &z[7]);
    }"""
    gpu = simgpu.Device("gfx942")
    out = gpu.alloc(64)
    gpu.load(built(source, "gfx942"))["k"].launch(grid=1, block=1, args=[out])
    assert np.allclose(out.download("f8"), [np.sin(1), 9, 0.25, 3, 7, 2.5, np.sin(1), np.cos(1)], rtol=1e-15, atol=0)


@needs_library
def test_fast_math_reaches_the_library() -> None:
    """It is another code: without the cases of special values."""
    source = 'extern "C" __global__ void k(float *x) { x[0] = powf(x[0], x[1]); }'
    assert len(built(source, "gfx90a", "-ffast-math")) < len(built(source, "gfx90a"))


@needs_library
@pytest.mark.parametrize("target", VERSIONS)
def test_a_kernel_prints_and_asserts(target: str) -> None:
    source = """extern "C" __global__ void k(int limit) {
        if (threadIdx.x % 32 == 0) printf("thread %d: %s %.2f\\n", threadIdx.x, "has", threadIdx.x / 4.0);
        assert((int)threadIdx.x < limit);
    }"""
    gpu = simgpu.Device(target)
    gpu.stdout = io.StringIO()
    kernel = gpu.load(built(source, target))["k"]
    kernel.launch(grid=1, block=64, args=[64])
    assert gpu.stdout.getvalue() == "thread 0: has 0.00\nthread 32: has 8.00\n"
    gpu.stdout = io.StringIO()
    with pytest.raises(simgpu.SimError, match="trap"):
        kernel.launch(grid=1, block=64, args=[63])
    assert gpu.stdout.getvalue().endswith("k.hip:3: assertion `(int)threadIdx.x < limit' failed.\n")


def test_vectors_are_those_of_hip() -> None:
    source = """static_assert(sizeof(float3) == 12 && alignof(uchar4) == 4 && alignof(double4) == 32 && alignof(int2) == 8);
    extern "C" __global__ void k(const float4 *x, double *z) {
        float4 y = x[threadIdx.x] * x[threadIdx.x] - make_float4(1, 2, 3, 4);
        short2 s = make_short2(30000, 7) + short2{30000, 1};
        double *at = z + 6 * threadIdx.x;
        at[0] = y.x, at[1] = y.y, at[2] = y.z, at[3] = y.w, at[4] = s.x, at[5] = s.y;
    }"""
    gpu = simgpu.Device("gfx942")
    x, out = np.arange(16, dtype="f4").reshape(4, 4), gpu.alloc(4 * 48)
    gpu.load(built(source, "gfx942"))["k"].launch(grid=1, block=4, args=[gpu.upload(x), out])
    want = np.column_stack([x.astype("f8") ** 2 - [1, 2, 3, 4], np.full(4, 60000 - 65536), np.full(4, 8)])
    assert np.array_equal(out.download("f8", (4, 6)), want)


@pytest.mark.parametrize("width", [64, 32, 8, 2])
def test_lanes_exchange_values(width: int) -> None:
    """As ROCm's documentation of the cross-lane functions has it: a lane without a partner keeps its own value."""
    source = f"""extern "C" __global__ void k(const long *x, long *z) {{
        int i = threadIdx.x;
        long v = x[i];
        z[i] = __shfl(v, 5, {width}), z[64 + i] = __shfl_up(v, 3, {width}), z[128 + i] = __shfl_down(v, 3, {width});
        z[192 + i] = __shfl_xor(v, 1, {width}), z[256 + i] = (long)__ballot(v & 1), z[320 + i] = __popcll(v) + 100 * __clz((int)v);
        z[384 + i] = __any(i == 9) + 2 * __all(i >= 0) + 4 * __all(i != 3) + 8 * __ffs(i);
    }}"""
    gpu = simgpu.Device("gfx90a")
    x, out, lane = np.arange(64, dtype="i8") * 0x1_0000_0003 + 1, gpu.alloc(7 * 512), np.arange(64)
    gpu.load(built(source, "gfx90a"))["k"].launch(grid=1, block=64, args=[gpu.upload(x), out])
    first, inside = lane - lane % width, lane % width
    low = [int(value) & 0xFFFFFFFF for value in x]
    want = [
        x[first + 5 % width], x[np.where(inside >= 3, lane - 3, lane)], x[np.where(inside + 3 < width, (lane + 3) % 64, lane)],
        x[lane ^ 1], np.full(64, np.uint64(sum(int(v & 1) << i for i, v in enumerate(x))).astype("i8")),
        np.array([bin(int(value)).count("1") + 100 * (32 - small.bit_length()) for value, small in zip(x, low)]),
        1 + 2 + 8 * np.array([(i & -i).bit_length() for i in range(64)]),
    ]  # fmt: skip
    assert np.array_equal(out.download("i8", (7, 64)), want)


def test_without_the_library_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiprtc, "device_library", lambda: None)
    assert built('extern "C" __global__ void k(float *x) { x[0] = sqrtf(x[0]) + expf(x[1]) + fmaxf(x[0], 1); }', "gfx942")
    source = 'extern "C" __global__ void k(float *x) { printf("%d", x[1] < 0); x[0] = sinf(x[0]) + cos((double)x[1]); }'
    code, log = compile_source(Source(source, "gfx942", file="k.hip"))
    assert code is None
    assert log.splitlines()[0].startswith("error: cos, printf, sinf need ROCm's device library: pip install triton, ")


def test_a_library_that_the_compiler_cannot_read_harms_only_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hiprtc.LIBRARIES:
        (tmp_path / name).write_text("bitcode of an LLVM to come")
    monkeypatch.setattr(hiprtc, "device_library", lambda: tmp_path)
    assert built('extern "C" __global__ void k(float *x) { x[0] = sqrtf(x[0]); }', "gfx942")
    code, log = compile_source(Source('extern "C" __global__ void k(float *x) { x[0] = sinf(x[0]); }', "gfx942", file="k.hip"))
    assert code is None and "ocml.bc" in log


def test_the_library_is_looked_for_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    folder = tmp_path / "amdgcn" / "bitcode"
    folder.mkdir(parents=True)
    (folder / "ocml.bc").touch()
    assert device_library() != folder  # one of two files
    (folder / "ockl.bc").touch()
    assert device_library() == folder
    monkeypatch.setenv("HIP_DEVICE_LIB_PATH", str(tmp_path))
    assert device_library() == folder


@pytest.mark.parametrize("target", VERSIONS)
def test_a_target_has_its_number(target: str) -> None:
    assert hiprtc._isa_version(target) == VERSIONS[target]
