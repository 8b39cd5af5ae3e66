"""Headers of C and C++ that kernels include: limits as numpy has them, traits as C++ defines them."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.hip.options import HipSource
from simgpu.tools.shared.hiprtc import STANDARD, compile_source
from tests.tools.test_hiprtc import built

INCLUDES = "".join(f"#include <{name.name}>\n" for name in sorted(STANDARD.iterdir()))
WHOLE = {
    "bool": np.uint8, "char": np.int8, "signed char": np.int8, "unsigned char": np.uint8, "short": np.int16, "int": np.int32,
    "unsigned short": np.uint16, "unsigned": np.uint32, "long": np.int64, "unsigned long": np.uint64, "long long": np.int64,
    "unsigned long long": np.uint64, **{f"{kind}int{bits}_t": f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
MACROS = {
    "SCHAR": np.int8, "UCHAR": np.uint8, "SHRT": np.int16, "USHRT": np.uint16, "INT": np.int32, "UINT": np.uint32, "LONG": np.int64,
    "ULONG": np.uint64, "LLONG": np.int64, "ULLONG": np.uint64, "INTPTR": np.int64, "UINTPTR": np.uint64, "SIZE": np.uint64,
    **{f"{kind.upper()}INT{bits}": f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
REAL = {"float": ("FLT", np.finfo(np.float32)), "double": ("DBL", np.finfo(np.float64))}


def bits(values: list[str], target: str = "gfx942", includes: str = INCLUDES) -> list[int]:
    """Returns what a kernel stores of whole numbers, as 64 bits each."""
    stores = "".join(f"  out[{at}] = (unsigned long)({value});\n" for at, value in enumerate(values))
    module = simgpu.Device(target).load(built(f"{includes}__global__ void k(unsigned long *out) {{\n{stores}}}\n", target))
    out = np.zeros(len(values), np.uint64)
    module["k"].launch(grid=1, block=1, args=[out])
    return out.tolist()


def reals(values: list[str]) -> list[float]:
    return np.array(bits([f"__double_as_longlong({value})" for value in values]), np.uint64).view(np.float64).tolist()


def test_limits_of_whole_numbers() -> None:
    types = {kind: np.iinfo(width) for kind, width in WHOLE.items() if kind != "bool"}
    ends = [f"std::numeric_limits<{kind}>::{end}()" for kind in types for end in ("min", "max")]
    expected = [value & (1 << 64) - 1 for info in types.values() for value in (int(info.min), int(info.max))]
    assert bits(ends) == expected
    assert bits(["std::numeric_limits<bool>::max()", "std::numeric_limits<const int>::digits"]) == [1, 31]


def test_macros_of_whole_numbers() -> None:
    tops, bottoms = [f"{name}_MAX" for name in MACROS], [name for name, width in MACROS.items() if np.iinfo(width).min]
    assert bits(tops) == [int(np.iinfo(width).max) for width in MACROS.values()]
    assert bits([f"{name}_MIN" for name in bottoms]) == [int(np.iinfo(MACROS[name]).min) & (1 << 64) - 1 for name in bottoms]


@pytest.mark.parametrize("kind", REAL)
def test_limits_of_real_numbers(kind: str) -> None:
    name, info = REAL[kind]
    numpy = {"max": info.max, "min": info.tiny, "lowest": info.min, "epsilon": info.eps, "denorm_min": info.smallest_subnormal}
    assert reals([f"std::numeric_limits<{kind}>::{one}()" for one in numpy]) == list(map(float, numpy.values()))
    macros = {"MAX": info.max, "MIN": info.tiny, "EPSILON": info.eps, "TRUE_MIN": info.smallest_subnormal}
    assert reals([f"{name}_{one}" for one in macros]) == list(map(float, macros.values()))
    assert reals([f"std::numeric_limits<{kind}>::infinity()"]) == [math.inf]
    assert math.isnan(*reals([f"std::numeric_limits<{kind}>::quiet_NaN()"]))


def test_constants_of_mathematics() -> None:
    logs = {"M_LOG2E": math.log2(math.e), "M_LOG10E": math.log10(math.e), "M_LN2": math.log(2), "M_LN10": math.log(10)}
    roots = {"M_SQRT2": math.sqrt(2), "M_SQRT1_2": math.sqrt(0.5), "M_2_SQRTPI": 2 / math.sqrt(math.pi)}
    parts = {"M_PI": 1, "M_PI_2": 1 / 2, "M_PI_4": 1 / 4} | {"M_1_PI": math.pi**-2, "M_2_PI": 2 * math.pi**-2}
    expected = logs | roots | {name: math.pi * part for name, part in parts.items()} | {"M_E": math.e, "INFINITY": math.inf}
    np.testing.assert_array_max_ulp(np.array(reals(list(expected)))[:-1], np.array(list(expected.values()))[:-1], maxulp=1)
    assert reals(["INFINITY", "HUGE_VAL", "-HUGE_VALF"]) == [math.inf, math.inf, -math.inf] and math.isnan(*reals(["NAN"]))


HOLD = """
static_assert(std::is_same_v<std::decay_t<const int (&)[3]>, const int *> && !std::is_same<int, long>::value);
static_assert(std::is_same_v<std::make_unsigned_t<signed char>, unsigned char>);
static_assert(std::is_same_v<std::remove_cvref_t<const int &>, int>);
static_assert(std::is_floating_point_v<float> && !std::is_integral_v<float> && std::is_integral_v<uint8_t>);
static_assert(std::is_convertible_v<int, double> && !std::is_pointer_v<int> && std::is_trivially_copyable_v<float4 *>);
static_assert(std::is_same_v<std::conditional_t<false, int, float>, float> && std::true_type::value && !std::false_type{});
static_assert(std::index_sequence<0, 1, 2>::size() == std::make_index_sequence<3>::size());
static_assert(std::clamp(7, 1, 5) == 5 && std::min(3, 2) == 2 && std::max(3.5f, 2.f) == 3.5f);
static_assert(std::max(1, 2, [](int a, int b) { return a > b; }) == 1);
static_assert(offsetof(float4, z) == 8 && CHAR_BIT == 8 && INT64_C(1) << 40 == 1l << 40 && sizeof(intptr_t) == 8);
template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0> __device__ int kind(T) { return 1; }
template <class T, std::enable_if_t<std::is_floating_point<T>::value, int> = 0> __device__ int kind(T) { return 2; }
template <size_t... I> __device__ int sum(const std::array<int, sizeof...(I)> &a, std::index_sequence<I...>) {
    return (a[I] + ...);
}
__global__ void k(int *x, float *y) {
    std::array<int, 3> a = {x[0], x[1], x[2]};
    auto [one, two] = std::make_pair(x[3], 2.5f);
    std::swap(a[0], a[2]);
    x[0] = a[0], x[1] = sum(a, std::make_index_sequence<3>{}), x[2] = kind(x[2]) + 10 * kind(two);
    x[3] = std::exchange(one, 9) + one;
    y[0] = std::sqrt(y[0]) + std::fabs(y[1]) + std::abs(-2), y[1] = std::isnan(y[2]) + 2 * std::isinf(y[3]) + 4 * isfinite(y[0]);
}
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_what_kernels_use_of_the_headers(target: str) -> None:
    module = simgpu.Device(target).load(built(INCLUDES + HOLD, target))
    x, y = np.array([5, 6, 7, 8], np.int32), np.array([9, -4, np.nan, np.inf], np.float32)
    module["k"].launch(grid=1, block=1, args=[x, y])
    assert x.tolist() == [7, 18, 21, 17] and y[:2].tolist() == [9, 7]


def test_objects_are_made_in_place_and_with_new() -> None:
    text = """#include <hip/hip_runtime.h>
struct Base { __device__ virtual int value() { return 1; } };
struct More : Base { int held; __device__ More(int x) : held(x) {} __device__ int value() override { return held; } };
__global__ void k(int *x) {
    __shared__ char place[sizeof(More)];
    Base *base = new (place) More(x[0]);
    x[1] = base->value();
    if (x[0] < 0) { delete[] new int[3]; abort(); __trap(); }
}
"""
    code, x = built(text, "gfx942"), np.array([7, 0], np.int32)
    simgpu.Device("gfx942").load(code)["k"].launch(grid=1, block=1, args=[x])
    assert x.tolist() == [7, 7]


FP8 = {
    "__hip_fp8_e4m3": ml_dtypes.float8_e4m3fn, "__hip_fp8_e5m2": ml_dtypes.float8_e5m2,
    "__hip_fp8_e4m3_fnuz": ml_dtypes.float8_e4m3fnuz, "__hip_fp8_e5m2_fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", FP8)
def test_numbers_of_eight_bits(name: str, target: str) -> None:
    """All codes, their midpoints and neighbours are what ml_dtypes has, on GPUs with instructions for them and without."""
    form, pair = FP8[name], name.replace("fp8_", "fp8x4_")
    codes = np.arange(256, dtype=np.uint8).view(form).astype(np.float32)
    finite = np.sort(np.unique(codes[np.isfinite(codes)]))
    middles = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([finite, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), [np.nan, 1e-45, 0.3, -0.0]])
    x = np.resize(x.astype(np.float32), 2048)
    text = f"""#include <hip/hip_fp8.h>
    __global__ void k(const float *x, unsigned char *made, unsigned char *loose, float *back, unsigned *four) {{
        int i = blockIdx.x * 64 + threadIdx.x;
        {name} held(x[i]);
        made[i] = held.__x;
        loose[i] = __hip_cvt_float_to_fp8(x[i] * 4, __HIP_NOSAT, {name}::__default_interpret);
        back[i] = __builtin_bit_cast({name}, (unsigned char)i);
        if (i % 4 == 0) four[i / 4] = {pair}(*(const float4 *)(x + i)).__x;
    }}"""
    made, loose, back, four = (np.zeros(2048 // part, kind) for part, kind in ((1, "u1"), (1, "u1"), (1, "f4"), (4, "u4")))
    module = simgpu.Device(target).load(built(text, target))
    module["k"].launch(grid=32, block=64, args=[x, made, loose, back, four])
    assert np.array_equal(back[:256], codes, equal_nan=True)
    assert np.array_equal(made.view(form).astype("f4"), x.astype(form).astype("f4"), equal_nan=True)
    assert np.array_equal(loose.view(form).astype("f4"), (x * 4).astype(form).astype("f4"), equal_nan=True)
    assert four.tobytes() == made.tobytes()
    top = float(ml_dtypes.finfo(form).max)
    ends = [f"{name}({top * 9:f}f).__x == {name}({top}f).__x", f"(float){name}(-1e9f) == -{top}f"]
    assert bits(ends, target, "#include <hip/hip_fp8.h>\n") == [1, 1]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", FP8)
def test_halves_and_numbers_of_eight_bits(name: str, target: str) -> None:
    """Every half becomes what ml_dtypes has; every code becomes a half, alone and in a pair."""
    form = FP8[name]
    text = f"""#include <hip/hip_fp16.h>
    #include <hip/hip_fp8.h>
    __global__ void k(const __half_raw *x, unsigned char *made, unsigned short *pairs, __half_raw *back, __half2_raw *both) {{
        int i = blockIdx.x * 64 + threadIdx.x;
        constexpr auto kind = {name}::__default_interpret;
        made[i] = __hip_cvt_halfraw_to_fp8(x[i], __HIP_NOSAT, kind);
        pairs[i] = __hip_cvt_halfraw2_to_fp8x2({{x[i], __half(x[i ^ 1])}}, __HIP_NOSAT, kind);
        back[i] = __hip_cvt_fp8_to_halfraw(i, kind);
        both[i] = __hip_cvt_fp8x2_to_halfraw2(i, kind);
    }}"""
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    made, pairs, back, both = (np.zeros(65536, kind) for kind in ("u1", "u2", "f2", "(2,)f2"))
    simgpu.Device(target).load(built(text, target))["k"].launch(grid=1024, block=64, args=[x, made, pairs, back, both])
    codes = np.arange(65536).astype("u2").view("u1").view(form).astype("f4").reshape(-1, 2)
    with np.errstate(over="ignore"):
        assert np.array_equal(made.view(form).astype("f4"), x.astype("f4").astype(form).astype("f4"), equal_nan=True)
        assert np.array_equal(both.astype("f4"), codes.astype("f2").astype("f4"), equal_nan=True)
    assert np.array_equal(back.astype("f4"), both[:, 0].astype("f4"), equal_nan=True)
    assert np.array_equal(pairs, made + (made.reshape(-1, 2)[:, ::-1].reshape(-1).astype("u2") << 8))


@pytest.mark.parametrize(("name", "kind", "value"), [
    ("atomicAdd", "__half", "__half(1)"), ("atomicAdd", "__half2", "__half2(1, 2)"),
    ("unsafeAtomicAdd", "__half2", "__half2(1, 2)"),
])  # fmt: skip
def test_atomics_on_halves_and_pairs(name: str, kind: str, value: str) -> None:
    """1,024 work-items add to two places without a finding; each earlier value of a place is returned once."""
    text = f"""#include <hip/hip_fp16.h>
    __global__ void k({kind} *sums, {kind} *before) {{
        int i = blockIdx.x * 256 + threadIdx.x;
        before[i] = {name}(sums + i % 2, {value});
    }}"""
    width = 2 if kind == "__half2" else 1
    steps = np.arange(1, 1 + width)
    sums, before = np.zeros((2, width), np.float16), np.zeros((1024, width), np.float16)
    run = simgpu.Device("gfx942", check=True).load(built(text, "gfx942"))["k"].launch(grid=4, block=256, args=[sums, before])
    assert not run.findings and np.array_equal(sums, [512 * steps] * 2)
    for place in (0, 1):
        assert np.array_equal(np.sort(before[place::2], axis=0), np.arange(512)[:, None] * steps)


def test_kinds_and_order_of_numbers() -> None:
    """fpclassify and the macros that compare, as Linux and IEEE 754 have them; integers count as double."""
    kinds = {"NAN": 0, "-INFINITY": 1, "-0.0f": 2, "1e-40f": 3, "1e-40": 4, "1e-310": 3, "7": 4}
    assert bits([f"fpclassify({value})" for value in kinds]) == list(kinds.values())
    assert bits([f"std::isnormal({value})" for value in kinds]) == [kind == 4 for kind in kinds.values()]
    signs = {"greater": ">", "greaterequal": ">=", "less": "<", "lessequal": "<=", "lessgreater": "!="}
    order = {f"is{name}": f"x {sign} y" for name, sign in signs.items()}
    pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 3.0)]
    for name, formula in order.items():
        assert bits([f"{name}({x}f, {y})" for x, y in pairs]) == [eval(formula, {"x": x, "y": y}) for x, y in pairs], name
        assert bits([f"{name}(NAN, 1)", "isunordered(1, NAN)", "isunordered(1, 2)"]) == [0, 1, 0]
    assert bits(["labs(-5000000000l)", "llabs(-3ll)", "__isnanf(NAN)", "__finite(1.0)", "__isinff(1.f)"]) == [5 * 10**9, 3, 1, 1, 0]


def test_nan_has_its_tag_as_in_the_c_library() -> None:
    library = ctypes.CDLL(None)
    library.nan.restype, library.nanf.restype = ctypes.c_double, ctypes.c_float
    for tag in ("", "12", "0x1aF", "017", "0xffffff", "12z", "9" * 15):
        double, single = np.float64(library.nan(tag.encode())), np.float32(library.nanf(tag.encode()))
        values = [f'__double_as_longlong(nan("{tag}"))', f'(unsigned)__float_as_int(std::nanf("{tag}"))']
        assert bits(values) == [int(double.view(np.uint64)), int(single.view(np.uint32))], tag


@pytest.mark.parametrize("use", ["tex1Dfetch(old, 1)", "tex2D<float>(object, 1, 2)", "tex3D<float4>(object, 1, 2, 3).x"])
def test_a_texture_is_refused_by_its_name(use: str) -> None:
    text = "{}__global__ void k(float *x, hipTextureObject_t object) {{ *x = {}; }}\n"
    code, log = compile_source(HipSource(text.format("texture<float> old;\n" if "old" in use else "", use), "gfx942"))
    assert code is None and "MI300 and MI350 have no textures" in log
    assert compile_source(HipSource(text.format("", "1"), "gfx942"))[0]


def bit_counts(number: int, width: int) -> list[int]:
    """Counts of <bit>, by the digits of a number."""
    digits = f"{number:0{width}b}"
    low = len(digits) - len(digits.rstrip("0")) if number else width
    zeros = len(digits) - len(digits.lstrip("0")) if number else width
    return [digits.count("1"), zeros, low, int(digits.count("1") == 1), width - zeros]


CPP_20 = """#include <bit>
#include <concepts>
#include <hip/hip_runtime.h>
template <std::unsigned_integral T> constexpr int kind(T) { return 1; }
template <std::floating_point T> constexpr int kind(T) { return 2; }
template <class T> requires(std::same_as<T, int> || std::convertible_to<T, int (*)()>) constexpr int kind(T) { return 3; }
struct base {};
struct heir : base {};
static_assert(kind(1u) == 1 && kind(1.0f) == 2 && kind(1) == 3 && kind([] { return 1; }) == 3);
static_assert(std::derived_from<heir, base> && !std::derived_from<base, heir> && std::signed_integral<int>);
static_assert(!std::convertible_to<base, heir> && !std::unsigned_integral<int> && std::integral<bool>);
constexpr float4 one() { return {1.0f, 2.0f, 3.0f, 4.0f}; }  // vectors are literal types, as HIP's are
constexpr __half2 none() { return __half2{__half{}, __half{}}; }
struct launched { float *out; hipStream_t stream; };
"""


def test_headers_of_cpp_20() -> None:
    numbers = {16: [0, 1, 0x8000, 0x0ff0], 32: [0, 1 << 31, 12, 0xffffffff], 64: [0, 1 << 63, 1 << 40, 0xf0f0 << 20]}
    types = {16: "unsigned short", 32: "unsigned", 64: "unsigned long"}
    calls = ("popcount", "countl_zero", "countr_zero", "has_single_bit", "bit_width")
    values = [f"std::{call}(({types[width]}){number}ul)" for width in numbers for number in numbers[width] for call in calls]
    values += ["std::bit_cast<unsigned>(-1.5f)", "one().w", "none().x"]
    stores = "".join(f"  out[{at}] = (unsigned long)({value});\n" for at, value in enumerate(values))
    text = f"{CPP_20}__global__ void k(unsigned long *out) {{\n{stores}}}\n"
    out = np.zeros(len(values), np.uint64)
    simgpu.Device("gfx942").load(built(text, "gfx942", "-std=c++20"))["k"].launch(grid=1, block=1, args=[out])
    expected = [count for width in numbers for number in numbers[width] for count in bit_counts(number, width)]
    assert out.tolist() == [*expected, int(np.float32(-1.5).view(np.uint32)), 4, 0]


def test_names_of_std_and_of_hip_do_not_clash() -> None:
    built("#include <hip/hip_runtime.h>\n#include <algorithm>\nusing namespace std;\n__global__ void k(float *x, int n, long m) {\n"
          "  x[0] = min(n, 3) + max(x[1], 2.f) + sqrt(x[2]) + abs(n) + max(m, 3l) + pow(x[3], 2) + isnan(x[4]);\n}\n", "gfx942")


def test_a_program_may_have_headers_and_traits_of_its_own(tmp_path: Path) -> None:
    """Programs for hiprtc define names of std that no header gave them, as PyTorch's do."""
    built("namespace std { template <class T, class U> struct is_same { static constexpr bool value = __is_same(T, U); }; }\n"
          "#define INFINITY 1e30f\n__global__ void k(int *x) { *x = std::is_same<int, int>::value + (int)INFINITY; }\n", "gfx942")
    (tmp_path / "limits").write_text("#define MINE 7\n")
    assert built("#include <limits>\n__global__ void k(int *x) { *x = MINE; }\n", "gfx942", "-I", str(tmp_path))
