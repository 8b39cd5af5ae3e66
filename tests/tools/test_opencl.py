"""Files of OpenCL C kernels, accepted wherever a code object is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from simgpu.tools.cases.sources import read_code_object
from simgpu.tools.cli import main
from tests.support.exhaustive import one_in
from tests.tools.test_exec import error

Capture = pytest.CaptureFixture[str]

SUMS = """__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sums(__global const float *x, __global float *y, __global int *most) {
    __local float part[256];
    uint t = get_local_id(0);
    part[t] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint rest = 128; rest; rest /= 2) {
        if (t < rest)
            part[t] += part[t + rest];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (t == 0) {
        y[get_group_id(0)] = part[0];
        atomic_max(most, (int)part[0]);
    }
}
"""
LAUNCH = ["--target", "mi210", "--arg", "count:f32:512", "--arg", "zeros:f32:2", "--arg", "zeros:i32:1", "--grid", "2"]


def written(folder: Path, text: str, name: str = "k.cl") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize("target", one_in(2, ["mi100", "mi210", "mi300x", "mi355x"]))
def test_a_kernel_runs_and_is_right(tmp_path: Path, target: str) -> None:
    path, x = written(tmp_path, SUMS), np.arange(512, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    launch = [str(tmp_path / "x.npy") if word == "count:f32:512" else word for word in LAUNCH]
    np.save(tmp_path / "want.npy", x.reshape(2, 256).sum(1))
    np.save(tmp_path / "most.npy", np.int32([x[256:].sum()]))
    expected = ["--expect", f"1={tmp_path / 'want.npy'}", "--expect", f"2={tmp_path / 'most.npy'}"]
    assert main(["exec", path, *launch, "--target", target, *expected]) == 0
    assert main(["check", path, *LAUNCH, "--target", target]) == 0
    assert main(["lint", path, "--target", target]) == 0
    assert main(["disasm", path, "--target", target]) == 0
    assert main(["asm", path, "--target", target]) == 0
    assert main(["exec", str(tmp_path / "k.co"), *launch[2:], *expected]) == 0


def test_a_finding_names_the_line_of_the_file(tmp_path: Path, capsys: Capture) -> None:
    """A finding names the user's line, even if the instruction comes from a function of the header."""
    path = written(tmp_path, re.sub(r"    barrier.*\n", "\n", SUMS))
    assert main(["check", path, *LAUNCH]) == 1
    found = capsys.readouterr().out
    assert "race: " in found and "(k.cl:9)" in found and "opencl.h" not in found
    short = ["zeros:f32:1" if word == "zeros:f32:2" else word for word in LAUNCH]
    assert "at k.cl:13" in error(capsys, "exec", written(tmp_path, SUMS), *short, status=1)
    assert main(["disasm", path, "--target", "mi210"]) == 0
    assert "opencl.h" not in capsys.readouterr().out


def test_messages_are_the_compilers(tmp_path: Path, capsys: Capture) -> None:
    path = written(tmp_path, SUMS.replace("part[0];", "parts[0];"))
    said = error(capsys, "exec", path, *LAUNCH, status=2)
    assert "simgpu exec: k.cl:13:30: error: use of undeclared identifier 'parts'" in said
    assert "names no target" in error(capsys, "disasm", path, status=2)
    missing = written(tmp_path, '#include "absent.h"\n' + SUMS)
    assert "k.cl:1:10: fatal error: 'absent.h' file not found" in error(capsys, "disasm", missing, "--target", "mi100", status=2)
    library = written(tmp_path, "__kernel void f(__global float *x) { *x = tanh(*x); }")
    assert "tanh" in error(capsys, "disasm", library, "--target", "mi100", status=2)


def test_a_file_beside_it_is_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "#define NAME other", "names.h")
    written(tmp_path, '#include "names.h"\n' + SUMS.replace("void sums", "void NAME"))
    monkeypatch.chdir(tmp_path)
    assert list(read_code_object("k.cl", "mi300x").kernels) == ["other"]


# Results of a work-item i in 0 .. 127, and numpy's for x = i / 8 - 5.5 (f32), n = 3 * i - 90 (int32), u = n as uint32.
FLOATS = {
    "min(x, 1.5f)": lambda x: np.minimum(x, 1.5),
    "fmax(x, -2.0f)": lambda x: np.maximum(x, -2),
    "clamp(x, -1.0f, 2.0f)": lambda x: x.clip(-1, 2),
    "mad(x, 3.0f, 1.0f)": lambda x: 3 * x + 1,
    "fma(x, x, 0.5f)": lambda x: x * x + 0.5,
    "fabs(x)": np.abs,
    "floor(x)": np.floor,
    "ceil(x)": np.ceil,
    "trunc(x)": np.trunc,
    "rint(x)": np.rint,
    "sqrt(fabs(x))": lambda x: np.sqrt(np.abs(x)),
    "rsqrt(x + 6)": lambda x: 1 / np.sqrt(x + 6),
    "copysign(2.0f, x)": lambda x: np.copysign(2, x),
    "mix(x, 1.0f, 0.25f)": lambda x: x + (1 - x) / 4,
    "exp(x)": np.exp,
    "exp2(x)": np.exp2,
    "log(x + 6)": lambda x: np.log(x + 6),
    "log2(x + 6)": lambda x: np.log2(x + 6),
    "log10(x + 6)": lambda x: np.log10(x + 6),
    "round(x)": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "sign(x)": np.sign,
    "sign((float2)(x, 1)).x": np.sign,
    "step(1.0f, x)": lambda x: (x >= 1) * 1.0,
    "step(1.0f, (float4)(x)).w": lambda x: (x >= 1) * 1.0,
    "degrees(x)": np.degrees,
    "radians(x)": np.radians,
    "length((float2)(x, 3))": lambda x: np.hypot(x, 3),
    "distance((float3)(x, 1, 2), (float3)(1, 1, 0))": lambda x: np.hypot(x - 1, 2),
    "length(x)": np.abs,
    "cross((float3)(x, 1, 2), (float3)(3, x, 1)).z": lambda x: x * x - 3,
    "cross((float4)(x, 1, 2, 9), (float4)(3, x, 1, 9)).y": lambda x: 6 - x,
    "normalize((float2)(x, 1)).x": lambda x: x / np.hypot(x, 1),
    "native_recip(x + 6)": lambda x: 1 / (x + 6),
    "native_divide(x, x + 6)": lambda x: x / (x + 6),
    "native_sqrt(x + 6)": lambda x: np.sqrt(x + 6),
    "native_rsqrt(x + 6)": lambda x: 1 / np.sqrt(x + 6),
    "native_exp(x)": np.exp,
    "native_exp2(x)": np.exp2,
    "native_log(x + 6)": lambda x: np.log(x + 6),
    "native_log2(x + 6)": lambda x: np.log2(x + 6),
    "native_powr(x + 6, 1.5f)": lambda x: (x + 6) ** 1.5,
    "native_sin(x)": np.sin,
    "native_cos(x)": np.cos,
    "isnan(sqrt(x)) ? 1 : 0": lambda x: x < 0,
    "isinf(1 / x) ? 1 : 0": lambda x: x == 0,
    "select(1.0f, 2.0f, x > 0)": lambda x: 1 + (x > 0),
    "dot((float4)(x, 1, 2, x), (float4)(x, 2, 3, 1))": lambda x: x * x + 8 + x,
    "max((float2)(x, 9), 0.0f).x": lambda x: np.maximum(x, 0),
    "as_float(as_uint(x) ^ 0x80000000u)": np.negative,
    "convert_float4((int4)((int)x)).z": np.trunc,
    "(float)sqrt((double)x + 6)": lambda x: np.sqrt(x + 6),
    "(float)fmin((half)x, (half)1)": lambda x: np.minimum(x, 1),
}
INTEGERS = {
    "min(n, 5)": lambda n: np.minimum(n, 5),
    "max(u, 5u)": lambda n: np.maximum(n % 2**32, 5),
    "clamp(n, -3, 7)": lambda n: n.clip(-3, 7),
    "abs(n)": np.abs,
    "abs_diff(n, 7)": lambda n: np.abs(n - 7),
    "mul_hi(n, 0x12345678)": lambda n: n * 0x12345678 >> 32,
    "mul_hi(u, 0x12345678u)": lambda n: (n % 2**32) * 0x12345678 >> 32,
    "mul24(n, -7)": lambda n: -7 * n,
    "mad24(n, 5, 3)": lambda n: 5 * n + 3,
    "rotate(u, 5u)": lambda n: (n % 2**32 << 5) | (n % 2**32 >> 27),
    "add_sat(n, 0x7fffffff)": lambda n: np.minimum(n + 0x7FFFFFFF, 0x7FFFFFFF),
    "sub_sat(u, 100u)": lambda n: np.maximum(n % 2**32 - 100, 0),
    "popcount(u)": lambda n: [int(v % 2**32).bit_count() for v in n],
    "popcount((uchar)n)": lambda n: [int(v % 256).bit_count() for v in n],
    "popcount((long)n)": lambda n: [(int(v) % 2**64).bit_count() for v in n],
    "clz(u)": lambda n: [32 - int(v % 2**32).bit_length() for v in n],
    "vload3(0, (__private int *)three).z": lambda n: n + 2,
    "any((int3)(n, 5, 6) < 0) + 2 * all((int2)(n, -5) < 0)": lambda n: 3 * (n < 0),
    "any((float4)(n, 5, 6, 7) > 7)": lambda n: n > 7,
    "(int)get_global_size(0)": lambda n: 128 + 0 * n,
    "(int)get_num_groups(0)": lambda n: 2 + 0 * n,
    "(int)get_local_size(0)": lambda n: 64 + 0 * n,
    "(int)get_group_id(0)": lambda n: np.arange(128) // 64,
    "(int)get_global_linear_id()": lambda n: np.arange(128),
    "(int)get_local_id(0)": lambda n: np.arange(128) % 64,
    "(int)get_work_dim()": lambda n: 1 + 0 * n,
    "(int)get_local_size(3)": lambda n: 1 + 0 * n,
}


@pytest.mark.slow
def test_functions_give_what_numpy_gives(tmp_path: Path) -> None:
    """Floats match to a few units in the last place, as OpenCL C allows; integers match exactly."""
    floats = "".join(f"    f[{row * 128} + i] = {text};\n" for row, text in enumerate(FLOATS))
    integers = "".join(f"    g[{row * 128} + i] = {text};\n" for row, text in enumerate(INTEGERS))
    path = written(tmp_path, f"""__kernel void all(__global float *f, __global int *g) {{
    int i = get_global_id(0), n = 3 * i - 90, three[3] = {{n, n + 1, n + 2}};
    uint u = n;
    float x = i / 8.0f - 5.5f;
{floats}{integers}}}
""")
    sizes = ["--arg", f"zeros:f32:{len(FLOATS)}x128", "--arg", f"zeros:i32:{len(INTEGERS)}x128"]
    saved = ["--save", f"0={tmp_path / 'f.npy'}", "--save", f"1={tmp_path / 'g.npy'}"]
    assert main(["exec", path, "--target", "mi300x", *sizes, "--grid", "2", "--block", "64", *saved]) == 0
    x, n = np.arange(128) / 8 - 5.5, 3 * np.arange(128, dtype=np.int64) - 90
    for got, (text, of) in zip(np.load(tmp_path / "f.npy"), FLOATS.items(), strict=True):
        np.testing.assert_allclose(got, of(x), rtol=3e-6, atol=1e-6, err_msg=text)
    for got, (text, of) in zip(np.load(tmp_path / "g.npy"), INTEGERS.items(), strict=True):
        np.testing.assert_array_equal(got.astype("u4"), (np.asarray(of(n)) % 2**32).astype("u4"), err_msg=text)


def test_an_argument_in_local_memory_is_an_offset(tmp_path: Path, capsys: Capture) -> None:
    path = written(tmp_path, """kernel void turned(global int *y, local int *t) {
    size_t i = get_local_id(0);
    t[i] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = t[get_local_size(0) - 1 - i];
}
""")
    np.save(tmp_path / "want.npy", np.arange(128, dtype=np.int32)[::-1])
    launch = ["--target", "mi100", "--arg", "zeros:i32:128", "--arg", "u32:0", "--grid", "1", "--block", "128"]
    assert main(["exec", path, *launch, "--dynamic-lds", "512", "--expect", f"0={tmp_path / 'want.npy'}"]) == 0
    assert main(["check", path, *launch, "--dynamic-lds", "512"]) == 0
    assert main(["check", path, *launch, "--dynamic-lds", "256"]) == 1


ATOMICS = {"add": 2016, "sub": -2016, "min": -1, "max": 63, "and": 0, "or": -1, "xor": 0, "inc": 64, "dec": -64}


def test_atomics_of_both_memories(tmp_path: Path) -> None:
    """Each of 64 work-items passes its number to the device's atomics and LDS's."""
    operand = {name: "" if name in ("inc", "dec") else ", i" for name in ATOMICS}
    lines = "".join(
        f"    atomic_{name}(g + {at}{operand[name]}); atomic_{name}(&s[{at}]{operand[name]});\n" for at, name in enumerate(ATOMICS)
    )
    path = written(tmp_path, f"""__kernel void all(__global int *g, __global int *h, __global ulong *wide) {{
    __local int s[9];
    int i = get_local_id(0);
    if (i < 9) s[i] = g[i];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
{lines}    atom_add(wide, 1ul << 33);
    atomic_cmpxchg(h + 9, 5, 7);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < 9) h[i] = s[i];
}}
""")
    start = np.int32([0, 0, -1, 0, -1, -1, 0, 0, 0])
    np.save(tmp_path / "start.npy", start)
    np.save(tmp_path / "h.npy", np.int32([0] * 9 + [5]))
    given = ["--arg", str(tmp_path / "start.npy"), "--arg", str(tmp_path / "h.npy"), "--arg", "zeros:u64:1"]
    words = [*given, "--grid", "1", "--block", "64"]
    saved = [word for at in range(3) for word in ("--save", f"{at}={tmp_path / f'{at}.npy'}")]
    assert main(["exec", path, "--target", "mi210", *words, *saved]) == 0
    want = list(ATOMICS.values())
    assert np.load(tmp_path / "0.npy").tolist() == want
    assert np.load(tmp_path / "1.npy").tolist() == [*want, 7]
    assert np.load(tmp_path / "2.npy").tolist() == [2**39]
