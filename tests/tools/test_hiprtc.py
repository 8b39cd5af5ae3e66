"""HIP source compiled without ROCm: functions of the device library give C's results on every board."""

from __future__ import annotations

import io
import math as c
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.hip.options import HipSource
from simgpu.tools.shared import hiprtc
from simgpu.tools.shared.hiprtc import compile_source, device_library
from tests.support.device_library import VERSIONS
from tests.support.exhaustive import one_in

# Limits in units in the last place of float: OpenCL C 3.0, table "ULP values for single precision built-in math functions". Those
# of double are the same, and ROCm's device library keeps them, too (doc/OCML.md).
ULP = {
    "sin": 4, "cos": 4, "tan": 5, "exp": 3, "exp2": 3, "log": 3, "log2": 3, "log10": 3, "tanh": 5, "sinh": 4, "cosh": 4, "asin": 4,
    "acos": 4, "atan": 5, "cbrt": 2, "expm1": 3, "log1p": 2, "sqrt": 3, "floor": 0, "fabs": 0,
}  # fmt: skip
ULP2 = {"pow": (16, np.power), "atan2": (6, np.arctan2), "fmod": (0, np.fmod), "hypot": (4, np.hypot), "fmin": (0, np.fmin)}
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
LIBRARY = device_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="no ocml.bc: neither ROCm nor the triton wheel is installed")


def built(source: str, target: str, *options: str) -> bytes:
    """Returns the code object; skips the test without clang."""
    code, log = compile_source(HipSource(source, target, options, file="k.hip"))
    if code is None and "no clang" in log:
        pytest.skip(log)
    assert code is not None, log
    return code


def math(kind: str) -> str:
    """Returns a kernel for each function of x, and of x and y."""
    suffix = "f" if kind == "float" else ""
    head, body = "extern \"C\" __global__ void", "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;"
    one = (f"{head} {n}_k(const {kind} *x, {kind} *z) {{ {body} z[i] = {n}{suffix}(x[i]); }}" for n in ULP)
    arguments = f"(const {kind} *x, const {kind} *y, {kind} *z)"
    two = (f"{head} {n}_k{arguments} {{ {body} z[i] = {n}{suffix}(x[i], y[i]); }}" for n in ULP2)
    return "\n".join([*one, *two])


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """Returns the units in the last place between results and those of a wider type; NaN and infinity must be the same."""
    with np.errstate(over="ignore"):
        rounded = want.astype(got.dtype)
    special = ~np.isfinite(rounded)
    assert np.array_equal(got[special], rounded[special], equal_nan=True)
    got, want = got[~special].astype(want.dtype), want[~special]
    return float(np.max(np.abs(got - want) / np.spacing(np.abs(rounded[~special]))))


@pytest.mark.covering(1)
@needs_library
@pytest.mark.parametrize("target", one_in(2, list(VERSIONS)))
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


@pytest.mark.slow
@needs_library
def test_fast_math_reaches_the_library() -> None:
    """Fast math gives other code: without the cases of special values."""
    source = 'extern "C" __global__ void k(float *x) { x[0] = powf(x[0], x[1]); }'
    assert len(built(source, "gfx90a", "-ffast-math")) < len(built(source, "gfx90a"))


@pytest.mark.slow
@needs_library
@pytest.mark.parametrize("target", one_in(4, list(VERSIONS)))
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
    """By ROCm's documentation of the cross-lane functions, a lane without a partner keeps its own value."""
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


def run_on(target: str, body: str, n: int, *inputs: np.ndarray, rows: int = 1) -> np.ndarray:
    """Returns the values that n lanes write to `double *z` of a kernel that also has the inputs, as x, y and so on.

    rows: values of each lane
    """
    types = {"f4": "float", "f8": "double", "i4": "int", "u2": "unsigned short"}
    arguments = "".join(f"const {types[data.dtype.str[1:]]} *{name}, " for name, data in zip("xyw", inputs))
    source = f'extern "C" __global__ void k({arguments}double *z) {{ int i = threadIdx.x; {body} }}'
    gpu = simgpu.Device(target)
    out = gpu.alloc(8 * n * rows)
    code = built(source, target, "-ffp-contract=off")
    gpu.load(code)["k"].launch(grid=1, block=n, args=[*map(gpu.upload, inputs), out])
    return out.download("f8")


@pytest.mark.parametrize("name, scale", [("rn", 0), ("rd", -1), ("ru", 1), ("rz", 2)])
def test_halves_are_rounded_as_the_name_says(name: str, scale: int) -> None:
    rng = np.random.default_rng(3)
    special = [0, 65504, 65519, 1e5, -1e5, 1, -1, 2**-24]
    x = np.concatenate([rng.normal(size=500), rng.normal(size=500) * 1e-6, special]).astype("f4")
    got = run_on("gfx90a", f"z[i] = __half2float(__float2half_{name}(x[i]));", len(x), x)
    with np.errstate(over="ignore"):
        near = x.astype("f2")
        down = np.where(near > x, np.nextafter(near, np.float16(-np.inf)), near)
        up = np.where(near < x, np.nextafter(near, np.float16(np.inf)), near)
    want = {0: near, -1: down, 1: up, 2: np.where(x < 0, up, down)}[scale]
    assert np.array_equal(got, want.astype("f8"))


def test_halves_compute_as_numpy_does() -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.normal(size=256).astype("f2").astype("f4") for _ in range(2))
    body = "__half a = x[i], b = y[i]; __half2 v(a, b), t = __hfma2(v, v, __half2(1, 2)) * 2; "
    got = run_on("gfx942", body + "z[i] = (float)((a + b) * a - b / a) + 1000 * (a < b) + 4000 * __hisnan(t.x);", 256, x, y)
    a, b = x.astype("f2"), y.astype("f2")
    assert np.array_equal(got, ((a + b) * a - b / a).astype("f8") + 1000 * (a < b))
    got = run_on("gfx942", body + "z[i] = __low2float(t) + (t == t) + (v >= t);", 256, x, y)
    fused = (a.astype("f8") ** 2 + 1).astype("f2") * np.float16(2)
    other = (b.astype("f8") ** 2 + 2).astype("f2") * np.float16(2)
    assert np.array_equal(got, (fused.astype("f4") + 1 + ~((a < fused) & (b < other))).astype("f8"))


@pytest.mark.parametrize("kind", ["hip_bfloat16", "__hip_bfloat16"])
def test_bfloat16_is_the_upper_half_of_float(kind: str) -> None:
    bits = np.arange(0, 2**32, 2**32 // 1009, dtype="u8").astype("u4")  # of every exponent
    x = np.concatenate([bits.view("f4"), np.array([1 + 2**-8, 1 + 3 * 2**-8, np.nan], "f4")])
    got = run_on("gfx950", f"{kind} b(x[i]); z[i] = (float)b + (float)(b - b);", len(x), x).astype("f4")
    word = x.view("u4").astype("u8")
    near = ((word + 0x7FFF + (word >> 16 & 1)) >> 16 << 16).astype("u4").view("f4")  # to the nearest, ties to even
    with np.errstate(invalid="ignore"):
        want = np.where(np.isnan(x), np.nan, near) + (near - near)
    assert np.array_equal(got, want, equal_nan=True)


BF16 = {
    "__hadd": np.add, "__hsub": np.subtract, "__hmul": np.multiply, "__hdiv": np.divide,
    "__hmax": np.fmax, "__hmin": np.fmin, "__heq": np.equal, "__hlt": np.less, "__hge": np.greater_equal,
    "__habs": np.abs, "__hneg": np.negative, "hsqrt": np.sqrt, "hfloor": np.floor, "hceil": np.ceil, "htrunc": np.trunc,
    "hrint": np.rint,
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, BF16))
def test_numbers_and_pairs_of_bfloat16(name: str) -> None:
    """Each number of a pair is what ml_dtypes computes in float32 and rounds."""
    rng, bf16 = np.random.default_rng(7), ml_dtypes.bfloat16
    x, y = (rng.normal(size=128).astype("f4").astype(bf16).astype("f4") for _ in range(2))
    x, x[:9], y[:9] = np.abs(x) if name == "hsqrt" else x, 1.5, 1.5
    count = BF16[name].nin
    pair = "__h2div" if name == "__hdiv" else name.replace("h", "h2", 1) if name[0] == "h" else name + "2"
    body = f"""__hip_bfloat162 p = __floats2bfloat162_rn(x[i], x[i ^ 1]), q = make_bfloat162(y[i], y[i ^ 1]);
        __hip_bfloat16 one = {name}({", ".join(["p.x", "q.x"][:count])}); __hip_bfloat162 two = {pair}({", ".join("pq"[:count])});
        z[i] = (float)one + 64 * (__low2float(two) == (float)one) + 4096.0 * __high2float(two);"""
    got, given = run_on("gfx942", body, 128, x, y), (x, y)[:count]
    want = np.asarray(BF16[name](*given)).astype("f4").astype(bf16).astype("f8")
    assert np.array_equal(got, want + 64 + 4096 * want.reshape(-1, 2)[:, ::-1].ravel())


def test_complex_numbers_and_constants() -> None:
    x, y = np.array([2.5, -1, 0.5], "f4"), np.array([3.5, 2, -4], "f4")
    body = """hipDoubleComplex p = make_hipDoubleComplex(x[i], y[i]), q = make_hipDoubleComplex(y[i], 1);
        z[i] = hipCreal(hipCdiv(hipCmul(p, q), hipCadd(p, hipConj(q)))) + hipCabs(p) + HIP_PI - HIP_SQRT_TWO_F;"""
    p, q = x + 1j * y.astype("c16"), y + 1j
    want = (p * q / (p + np.conj(q))).real + np.abs(p) + np.pi - np.float32(2**0.5)
    assert np.allclose(run_on("gfx90a", body, 3, x, y), want, rtol=1e-14, atol=0)


def test_groups_of_lanes() -> None:
    body = """namespace cg = cooperative_groups;
        auto tile = cg::tiled_partition<16>(cg::this_thread_block());
        int sum = i;
        for (int by = 8; by; by /= 2) sum += tile.shfl_down(sum, by);
        z[i] = tile.shfl(sum, 0) + 1e4 * tile.ballot(i % 5 == 0) + 1e9 * tile.meta_group_rank();
        if (i % 3 == 0) z[i] += 1e12 * cg::coalesced_threads().thread_rank();"""
    lanes = np.arange(128)
    sums = lanes.reshape(8, 16).sum(1).repeat(16)
    ballots = np.array([sum(1 << (j % 16) for j in range(t * 16, t * 16 + 16) if j % 5 == 0) for t in range(8)]).repeat(16)
    ranks = np.concatenate([np.cumsum(lanes[w : w + 64] % 3 == 0) - 1 for w in (0, 64)]) * (lanes % 3 == 0)
    got = run_on("gfx942", body, 128, np.zeros(1, "f4"))
    assert np.array_equal(got, sums + 1e4 * ballots + 1e9 * (lanes // 16) + 1e12 * ranks)


def test_integers_are_those_of_python() -> None:
    """Python computes with integers of any width, and the result is cut."""
    rng = np.random.default_rng(6)
    x, y = (rng.integers(-(2**31), 2**31, 256).astype("i4") for _ in range(2))
    x[:4], y[:4] = [0, -1, -(2**31), 2**31 - 1], [0, -1, -(2**31), 5]
    low = 2**32 - 1

    def pair(a: int, b: int) -> int:
        return (b & low) << 32 | a & low

    words = {
        "__brev(x[i])": lambda a, b, at: int(f"{a & low:032b}"[::-1], 2),
        "__byte_perm(x[i], y[i], 0x3715)":
            lambda a, b, at: int.from_bytes([pair(a, b).to_bytes(8, "little")[n] for n in (3, 7, 1, 5)], "big"),
        "__funnelshift_l(x[i], y[i], i)": lambda a, b, at: pair(a, b) << at % 32 >> 32 & low,
        "__funnelshift_r(x[i], y[i], i)": lambda a, b, at: pair(a, b) >> at % 32 & low,
        "__funnelshift_lc(x[i], y[i], i)": lambda a, b, at: pair(a, b) << min(at, 32) >> 32 & low,
        "__funnelshift_rc(x[i], y[i], i)": lambda a, b, at: pair(a, b) >> min(at, 32) & low,
        "(unsigned)__mulhi(x[i], y[i])": lambda a, b, at: a * b >> 32 & low,
        "__umulhi(x[i], y[i])": lambda a, b, at: (a & low) * (b & low) >> 32,
        "(unsigned)(__mul64hi(x[i] * 3000000000l, y[i] * 3000000000l) >> 20)": lambda a, b, at: a * b * 9 * 10**18 >> 84 & low,
        "(unsigned)__hadd(x[i], y[i])": lambda a, b, at: (a + b) >> 1 & low,
        "__urhadd(x[i], y[i])": lambda a, b, at: ((a & low) + (b & low) + 1) >> 1,
        "__sad(x[i], y[i], 7)": lambda a, b, at: abs(a - b) + 7 & low,
        "__bitextract_u32(x[i], 5, 9)": lambda a, b, at: a >> 5 & 511,
        "__bitinsert_u32(x[i], y[i], 5, 9)": lambda a, b, at: (a & low) & ~(511 << 5) | (b & 511) << 5,
        "(unsigned)__fns32(x[i], 9, 3)": lambda a, b, at: ([bit for bit in range(9, 32) if a >> bit & 1][2:3] or [-1])[0] & low,
        "(unsigned)__fns64(x[i], 50, -2)": lambda a, b, at: ([bit for bit in range(51) if a >> bit & 1][-2:-1] or [-1])[0] & low,
        "__double2hiint(__hiloint2double(x[i], y[i])) == x[i]": lambda a, b, at: 1,
    }  # fmt: skip
    got = run_on("gfx90a", " ".join(f"z[256 * {n} + i] = {word};" for n, word in enumerate(words)), 256, x, y, rows=len(words))
    for (word, oracle), row in zip(words.items(), got.reshape(-1, 256)):
        assert row.tolist() == [oracle(a, b, at) for at, (a, b) in enumerate(zip(x.tolist(), y.tolist()))], word


@needs_library
@pytest.mark.parametrize("name, toward", [("rn", 0), ("rd", -np.inf), ("ru", np.inf), ("rz", None)])
def test_conversions_are_rounded_as_the_name_says(name: str, toward: float | None) -> None:
    rng = np.random.default_rng(7)
    x = rng.integers(-(2**31), 2**31, 256).astype("i4")
    y = np.concatenate([rng.normal(size=250) * 1e4, [0.5, 1.5, -0.5, -2.5, 1e-9, -1e-9]])
    kinds = "int2float_R(x[i])", "uint2float_R(x[i])", "ll2float_R(x[i] * 4000000007l)", "double2float_R(y[i])"
    whole = "double2int_R(y[i])", "float2ll_R((float)y[i])", "double2ull_R(fabs(y[i]))"
    body = " ".join(f"z[256 * {n} + i] = __{word.replace('R', name)};" for n, word in enumerate((*kinds, *whole)))
    got = run_on("gfx942", body, 256, x, y, rows=7).reshape(7, 256)
    long = x.astype("i8")
    exact = [long.astype("f16"), (long & 0xFFFFFFFF).astype("f16"), (long * 4000000007).astype("f16"), y.astype("f16")]
    for row, value in zip(got, exact):
        near, way = value.astype("f4"), -np.sign(value) * np.inf if toward is None else np.full(256, toward)
        off = (near.astype("f16") - value) * way < 0 if name != "rn" else np.zeros(256, bool)
        assert np.array_equal(row, np.where(off, np.nextafter(near, way.astype("f4")), near).astype("f8"))
    rounded = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}[name]
    for row, value in zip(got[4:], (y, y.astype("f4"), np.abs(y))):
        assert np.array_equal(row, rounded(value.astype("f8")))


@needs_library
@pytest.mark.parametrize("suffix", ["", "f"])
def test_mathematics_with_integers_and_several_results(suffix: str) -> None:
    kind, f = ("float", "f4") if suffix else ("double", "f8")
    rng = np.random.default_rng(8)
    x, y = (rng.normal(size=256).astype("f4") * 9 for _ in range(2))
    (fraction, exponent), (part, whole) = np.frexp(x), np.modf(x)
    p, q = x.astype("f8"), y.astype("f8")
    words = {
        "ldexpF(a, i % 9 - 4)": np.ldexp(x, np.arange(256) % 9 - 4), "scalblnF(a, -3l)": x / 8,
        "(frexpF(a, &n) + 100 * n)": fraction.astype(f) + (100 * exponent).astype(f),
        "(modfF(a, &w) + 100 * w)": part.astype(f) + (100 * whole).astype(f),
        "ilogbF(a)": exponent - 1.0, "logbF(a)": exponent - 1.0,
        "lroundF(a)": np.trunc(p + np.copysign(0.5, p)), "llrintF(a)": np.rint(x),
        "remquoF(a, b, &n)": np.array([*map(c.remainder, p, q)]), "norm3dF(a, b, 2)": np.sqrt(p**2 + q**2 + 4),
        "normF(2, v)": np.hypot(p, q), "rhypotF(a, b)": 1 / np.hypot(p, q), "rcbrtF(a)": 1 / np.cbrt(p), "powiF(a, 3)": p**3,
        "normcdfF(a)": np.array([c.erfc(-value / 2**0.5) / 2 for value in p]), "cyl_bessel_i0F(a / 9)": np.i0(p / 9),
        "erfF(erfinvF((i + 1) / 300.0F))": (np.arange(256) + 1) / 300,
        "(jnF(2, a) + j0F(a)) * a - 2 * j1F(a)": np.zeros(256), "fdividef(2, 4)": np.full(256, 0.5),
        "(sincospiF(a, &w, v), w * w + v[0] * v[0])": np.ones(256),
    }  # fmt: skip
    calls = " ".join(f"z[256 * {n} + i] = {word};" for n, word in enumerate(words)).replace("F", suffix)
    body = f"{kind} a = x[i], b = y[i], w, v[2] = {{a, b}}; int n; {calls}"
    got = run_on("gfx950", body, 256, x, y, rows=len(words)).reshape(-1, 256)
    for (word, want), row in zip(words.items(), got):
        assert np.allclose(row, want, rtol=2e-6 if suffix else 1e-12, atol=4e-6 if suffix else 1e-13), word


@needs_library
def test_words_of_a_whole_block() -> None:
    body = """namespace cg = cooperative_groups;
        z[i] = __syncthreads_count(i % 3 == 0) + 1000 * __syncthreads_and(i < 128) + 2000 * __syncthreads_or(i == 77);
        z[128 + i] = __popcll(__match_any(i % 5)) + 100 * __popcll(__lanemask_lt()) + 1e4 * __popcll(__lanemask_gt());
        if (i % 3 == 1) z[128 + i] += 1e6 * cg::coalesced_threads().shfl(i, 2);
        __shared__ unsigned up, down, swapped;
        if (i == 0) up = 3, down = 3, swapped = 0;
        __syncthreads();
        atomicInc(&up, 5), atomicDec(&down, 5);
        for (unsigned old = swapped, seen = ~old; old != seen;) seen = old, old = atomicCAS(&swapped, seen, seen + 1ull);
        __syncthreads();
        z[256 + i] = up + 100 * down + 10000 * swapped;
        auto grid = cg::this_grid();
        z[384 + i] = grid.thread_rank() + 1000 * cg::this_thread_block().group_dim().x + 1e6 * grid.num_blocks();"""
    got = run_on("gfx942", body, 128, np.zeros(1, "f4"), rows=4).reshape(4, 128)
    lane = np.arange(128)
    alike = np.array([sum(o % 5 == t % 5 for o in range(t // 64 * 64, t // 64 * 64 + 64)) for t in range(128)])
    third = np.array([[o for o in range(t // 64 * 64, t // 64 * 64 + 64) if o % 3 == 1][2] for t in range(128)])
    assert np.array_equal(got[0], np.full(128, 43 + 1000 + 2000))
    assert np.array_equal(got[1], alike + 100 * (lane % 64) + 1e4 * (63 - lane % 64) + 1e6 * third * (lane % 3 == 1))
    assert np.array_equal(got[2], np.full(128, (3 + 128) % 6 + 100 * ((3 - 128) % 6) + 10000 * 128))
    assert np.array_equal(got[3], lane + 1000 * 128 + 1e6)


def test_options_of_a_program_warn_of_its_own_lines_only() -> None:
    source = "extern \"C\" __global__ void k(float *z) { int unused; *z = __builtin_inff(); }"
    code, log = compile_source(HipSource(source, "gfx942", ("-ffast-math", "-Wall", "-Wextra"), file="mine.cu"))
    assert code is not None and log.count("warning:") == log.count("mine.cu:") >= 2


@pytest.mark.parametrize("bounds", ["0", "3.5", "64, 1.5"])
def test_launch_bounds_are_examined(bounds: str) -> None:
    source = "extern \"C\" __global__ void __launch_bounds__({}) k(int *z) {{ *z = 1; }}"
    assert compile_source(HipSource(source.format(bounds), "gfx942", (), file="k.hip"))[0] is None
    assert built(source.format("64, 2"), "gfx942")


def test_headers_of_hip_may_be_included_or_not() -> None:
    source = "".join(f"#include <hip/{path.name}>\n" for path in (hiprtc.HIP_HEADERS / "hip").iterdir())
    assert built(source + 'extern "C" __global__ void k(__half *x, float4 *y) { x[0] += __half(y[0].x); }', "gfx942")


def test_a_program_may_have_a_variable_of_its_own_named_warpsize() -> None:
    """As the templates of TileLang have; in HIP the name is a constant, no macro. Addresses are integers of `uintptr_t`."""
    body = "const int warpSize = 32; x[0] = warpSize + (reinterpret_cast<uintptr_t>(x) == (uintptr_t)(intptr_t)x);"
    kernel = f"template <int n = warpSize> __global__ void k(int *x) {{ {body} }}"
    assert built(f"{kernel}\ntemplate __global__ void k<>(int *);", "gfx942")


def test_folders_of_headers_are_those_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.h").write_text("enum { ONE = 1 };")
    text = '#include "one.h"\nextern "C" __global__ void k(int *x) { x[0] = ONE; }'
    for options in (("-Imine",), ("-I", "mine"), (f"-I{tmp_path}/mine",)):
        code, log = compile_source(HipSource(text, "gfx942", options, folder=str(tmp_path)))
        if code is None and "no clang" in log:
            pytest.skip(log)
        assert code is not None, log


def test_without_the_library_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiprtc, "device_library", lambda: None)
    assert built('extern "C" __global__ void k(float *x) { x[0] = sqrtf(x[0]) + expf(x[1]) + fmaxf(x[0], 1); }', "gfx942")
    source = 'extern "C" __global__ void k(float *x) { printf("%d", x[1] < 0); x[0] = sinf(x[0]) + cos((double)x[1]); }'
    code, log = compile_source(HipSource(source, "gfx942", file="k.hip"))
    assert code is None
    assert log.splitlines()[0].startswith("error: cos, printf, sinf need ROCm's device library: pip install triton, ")


def test_a_library_that_the_compiler_cannot_read_harms_only_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hiprtc.LIBRARIES:
        (tmp_path / name).write_text("bitcode of an LLVM to come")
    monkeypatch.setattr(hiprtc, "device_library", lambda: tmp_path)
    assert built('extern "C" __global__ void k(float *x) { x[0] = sqrtf(x[0]); }', "gfx942")
    code, log = compile_source(HipSource('extern "C" __global__ void k(float *x) { x[0] = sinf(x[0]); }', "gfx942", file="k.hip"))
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
