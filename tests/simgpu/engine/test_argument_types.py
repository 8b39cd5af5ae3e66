"""Numbers for arguments without a type in the metadata: by mangled or OpenCL names, by DWARF, else assumed with a message."""

from __future__ import annotations

import ctypes
import re
import struct

import ml_dtypes
import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.hardware.code_object.arguments import encode
from simgpu.hardware.code_object.kernels import Argument
from simgpu.hardware.code_object.mangled import parameter_types
from simgpu.hardware.errors import LaunchError
from tests.support.clang import linked
from tests.support.kernels import KernelText, assemble, source

NAMES = {
    "_Z4axpyfPfS_i": ("f32", "pointer", "pointer", "i32"),
    "_Z1kv": (),
    "_Z1kIfEvT_S0_": ("f32", "f32"),
    "_Z1kIfiEvPT_T0_S0_": ("pointer", "i32", "f32"),
    "_ZN2ns1kEfPKfj": ("f32", "pointer", "u32"),
    "_ZN2ns1kIdEEvT_PS1_": ("f64", "pointer"),
    "_ZN12_GLOBAL__N_11kEfm": ("f32", "u64"),
    "_Z1kSt4pairIifEf": ("", "f32"),
    "_Z1kDv4_fS_f": ("", "", "f32"),
    "_Z1kN2ns3fooES0_f": ("", "", "f32"),
    "_Z1kPU3AS1fS0_d": ("pointer", "pointer", "f64"),
    "_Z1kILi64EfEvT0_PS0_b": ("f32", "pointer", "u8"),
    "_Z1kILin1EEvd": ("f64",),
    "_Z1kPFvifEf": ("pointer", "f32"),
    "_Z1k3fooIiES_IfEf": ("", "", "f32"),
    "_Z1kN1a1bIfE1cEf": ("", "f32"),
    "_Z1kxyst": ("i64", "u64", "i16", "u16"),
    "_Z1kaclh": ("i8", "i8", "i64", "u8"),
    "_Z1kf.kd": ("f32",),
}
SPELLED = {
    "float": "f32", "double": "f64", "int": "i32", "unsigned int": "u32", "long": "i64", "unsigned long": "u64", "bool": "u8",
    "short": "i16", "unsigned short": "u16", "long long": "i64", "unsigned long long": "u64", "char": "i8", "signed char": "i8",
    "unsigned char": "u8",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_types_of_mangled_names(name):
    assert parameter_types(name) == NAMES[name]


@pytest.mark.parametrize("name", [name for name in NAMES if "." not in name])
def test_they_are_the_demangler_s(name):
    """libstdc++'s demangler is an oracle that shares nothing with ours."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except OSError:
        pytest.skip("no libstdc++ on this machine")
    demangle.restype = ctypes.c_char_p
    shown = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int())).decode().replace("(anonymous namespace)", "x")
    inside = shown[shown.index("(") + 1 : -1]
    while "<" in inside or "(" in inside:
        inside = re.sub(r"<[^<>]*>|\([^()]*\)", "", inside)
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    found = ["pointer" if "*" in part or part == "void" else SPELLED.get(part, "") for part in parts]
    assert tuple(found) == NAMES[name]


LONG = ["_Z1k" + "P" * depth + "f" for depth in (500, 5000)]


@pytest.mark.parametrize("name", ["k", "_Z", "_Z4axpy", "_Z9axpyf", "_Z1kS_", "_Z1kT_", "_ZN1kf", "_Z1kD", *LONG])
def test_names_that_tell_nothing(name):
    assert parameter_types(name) is None


KEEP = """
s_load_dword s6, s[0:1], 0x0
s_load_dwordx2 s[8:9], s[0:1], 0x8
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
v_mov_b32 v2, s6
global_store_dword v1, v2, s[8:9]
s_waitcnt vmcnt(0)
"""


def stored(name, value, check=False, type_name=""):
    """Returns the bits that a kernel finds in its first argument (4 bytes, no value_type), and the run."""
    text = source("gfx90a", KernelText(name, KEEP, ("f32", "buffer")))
    text = text.replace(", .value_type: f32", f", .type_name: {type_name}" if type_name else "")
    assemble("gfx90a", KernelText("k", "s_nop 0"))  # skips without an assembler
    gpu = simgpu.Device("gfx90a", check=check)
    out = gpu.upload(np.zeros(1, np.uint32))
    run = gpu.load(toolchain.assemble(text, "gfx90a"))[name].launch(grid=1, args=[value, out])
    return int(out.download("u4")[0]), run


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def test_a_mangled_name_makes_an_integer_a_float():
    for name in ("_Z1kfPf", "_ZN2ns1kIfEEvT_PS1_"):
        assert stored(name, 2)[0] == bits(2.0)
        assert stored(name, 2)[1].notes == ()
    assert stored("_Z1kiPf", 2)[0] == 2
    with pytest.raises(LaunchError, match=r"got the float 2.5"):
        stored("_Z1kiPf", 2.5)


def test_opencl_s_names_do():
    assert stored("k", 2, type_name="float")[0] == bits(2.0)
    assert stored("k", -1, type_name="int")[0] == 0xFFFFFFFF


# Each argument's declaration, its format in memory, a number for it and the kernel's value.
PLAIN = [
    ("float", "f4", 2, 2.0), ("fixed", "f4", -7, -7.0), ("double", "f8", 3, 3.0), ("_Float16", "f2", 5, 5.0),
    ("real", "f4", 0.5, 0.5), ("int", "i4", -2, -2), ("enum kind", "u4", 1, 1), ("short", "i2", -3, -3),
    ("unsigned char", "u1", 200, 200), ("long", "i8", 1 << 40, 1 << 40), ("_Bool", "u1", True, 1),
    ("volatile float", "f4", np.int64(9), 9.0),
]  # fmt: skip


@pytest.mark.parametrize("options", [["-O2", "-gdwarf-4"], ["-O2", "-gdwarf-5"], ["-O0", "-gdwarf-5", "-gz=zlib"]], ids=" ".join)
def test_debug_information_tells_of_a_plain_name(options):
    parameters = ", ".join(f"{kind} a{place}" for place, (kind, *_) in enumerate(PLAIN))
    plain = {"volatile float": "float", "fixed": "real"}
    members = "".join(f"{plain.get(kind, kind)} a{place}; " for place, (kind, *_) in enumerate(PLAIN))
    source = f"""typedef float real; typedef const real fixed; enum kind {{ ZERO, ONE }};
    struct all {{ {members}}};
    __attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) struct all *out, {parameters}) {{
      {"".join(f"out->a{place} = a{place}; " for place in range(len(PLAIN)))}
    }}"""
    form = np.dtype([(f"a{place}", format_) for place, (_, format_, _, _) in enumerate(PLAIN)], align=True)
    gpu = simgpu.Device("gfx90a", check=True)
    out = gpu.upload(np.zeros(1, form).view("u1"))
    run = gpu.load(linked(source, *options))["k"].launch(1, 64, [out, *(number for _, _, number, _ in PLAIN)])
    assert out.download("u1").view(form)[0].tolist() == tuple(found for *_, found in PLAIN)
    assert run.notes == ()


def test_without_it_the_type_is_assumed():
    source = "__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) float *out, float a) { *out = a; }"
    gpu = simgpu.Device("gfx90a")
    out = gpu.upload(np.zeros(1, np.uint32))
    for options, found, notes in ((["-g"], bits(2), 0), ([], 2, 1), (["-gline-tables-only"], 2, 1)):
        run = gpu.load(linked(source, "-O2", *options))["k"].launch(1, 64, [out, 2])
        assert int(out.download("u4")[0]) == found and len(run.notes) == notes


@pytest.mark.parametrize("check", [False, True])
def test_what_is_assumed_is_said(check):
    value, run = stored("k", 2, check)
    assert value == 2
    (note,) = run.notes
    assert note.startswith("argument a0 (4 bytes): the code object does not say its type; 2 was passed as an integer")
    assert "numpy.float32(2)" in note
    assert [(f.kind, f.severity, f.message) for f in run.findings] == ([("argument-type", "note", note)] if check else [])
    for certain in (0, np.float32(2), np.int32(2), 2.0, b"1234"):
        value, run = stored("k", certain, check)
        assert run.notes == () and run.findings == []


@pytest.mark.parametrize(
    ("type_", "size", "value", "wanted"),
    [
        ("bf16", 2, 1.0, np.array(1.0, ml_dtypes.bfloat16).tobytes()), ("bf16", 2, 3, np.array(3.0, ml_dtypes.bfloat16).tobytes()),
        ("f16", 2, 3, struct.pack("<e", 3)), ("f64", 8, 3, struct.pack("<d", 3)), ("", 8, 2.5, struct.pack("<d", 2.5)),
        ("", 2, 2.5, struct.pack("<e", 2.5)), ("f32", 4, np.int64(7), struct.pack("<f", 7)),
        ("f64", 8, np.float32(0.5), struct.pack("<d", 0.5)), ("f32", 4, np.float64(0.5), struct.pack("<f", 0.5)),
    ],
)  # fmt: skip
def test_numbers_take_the_argument_s_type(type_, size, value, wanted):
    assert encode("k", Argument("a", 0, size, "by_value", value_type=type_), value) == wanted


@pytest.mark.parametrize(
    ("type_", "size", "value"),
    [
        ("i32", 4, 1 << 32), ("", 2, 1 << 16), ("u8", 1, -129), ("f32", 4, 1e39), ("bf16", 2, 6.8e38), ("f16", 2, 70000),
        pytest.param("f64", 8, 10**400, id="f64"),
    ],
)
def test_numbers_out_of_range_are_refused(type_, size, value):
    with pytest.raises(LaunchError, match=r"does not fit|past the largest float"):
        encode("k", Argument("a", 0, size, "by_value", value_type=type_), value)
