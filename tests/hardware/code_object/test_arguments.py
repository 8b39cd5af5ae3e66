"""Kernel argument packing: the corpus's expected hidden values, and errors in words."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from simgpu.hardware.code_object.arguments import Geometry, encode, pack
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import Argument
from simgpu.hardware.errors import LaunchError
from tests.support.places import CORPUS

MANIFEST = CORPUS / "manifest.json"
CASES = json.loads(MANIFEST.read_text())["cases"] if MANIFEST.exists() else []
corpus = pytest.mark.skipif(not CASES, reason="the corpus of compiled kernels is not here")

WORD = Argument("n", 0, 4, "by_value")
POINTER = Argument("x", 0, 8, "global_buffer")


def load(case):
    code = CodeObject.parse((CORPUS / case["hsaco"]).read_bytes())
    return code.kernels[case["entry"]]


def arguments(case):
    values = []
    for arg in case["args"]:
        if arg["kind"].startswith("pointer"):
            values.append(SimpleNamespace(address=0x7F0000001000 + arg["offset"]))
        elif arg["kind"] != "hidden-value":
            values.append(0 if arg["kind"] == "hidden-pointer" else arg["value"])
    return values


def geometry(case):
    return Geometry(
        tuple(case["workgroup_size"]),
        tuple(case["grid_size_workitems"]),
        case["dynamic_lds_bytes"],
    )


@corpus
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_packed_segment_is_what_the_manifest_says(case):
    segment = pack(load(case), arguments(case), geometry(case))
    values = iter(arguments(case))
    for arg in case["args"]:
        raw = segment[arg["offset"] : arg["offset"] + arg["size"]]
        if arg["kind"] == "hidden-value":
            assert int.from_bytes(raw, "little") == arg["value"], arg["name"]
            continue
        value = next(values)
        if hasattr(value, "address"):
            assert int.from_bytes(raw, "little") == value.address
        elif isinstance(value, float):
            assert struct.unpack("<f" if arg["size"] == 4 else "<d", raw)[0] == pytest.approx(value)
        else:
            assert int.from_bytes(raw, "little", signed=value < 0) == value


@corpus
def test_partial_workgroup_counts():
    case = next(c for c in CASES if c["name"].startswith("cl_partial_wg"))
    launch = geometry(case)
    for axis in range(3):
        assert launch.groups[axis] == case["grid"][axis]


@corpus
def test_errors_name_the_argument_and_the_limit():
    case = next(c for c in CASES if c["name"].startswith("cl_saxpy"))
    kernel, args, launch = load(case), arguments(case), geometry(case)
    with pytest.raises(LaunchError, match=rf"takes {len(args)} arguments, got {len(args) - 1}"):
        pack(kernel, args[:-1], launch)
    with pytest.raises(LaunchError, match="extents"):
        pack(kernel, args, Geometry((0, 1, 1), (64, 1, 1)))
    with pytest.raises(LaunchError, match="work-items"):
        pack(kernel, args, Geometry((1025, 1, 1), (2050, 1, 1)))


@pytest.mark.parametrize(
    ("argument", "value", "raw"),
    [
        (WORD, -1, b"\xff" * 4),
        (WORD, 0xFFFFFFFF, b"\xff" * 4),
        (WORD, 1.5, struct.pack("<f", 1.5)),
        (WORD, np.float32(1.5), struct.pack("<f", 1.5)),
        (WORD, np.float64(1.5), struct.pack("<f", 1.5)),
        (WORD, np.int64(-2), struct.pack("<i", -2)),
        (WORD, np.array(7, np.int32), struct.pack("<i", 7)),
        (WORD, b"abcd", b"abcd"),
        (WORD, True, struct.pack("<i", 1)),
        (Argument("h", 0, 2, "by_value"), np.float16(0.5), struct.pack("<e", 0.5)),
        (Argument("d", 0, 8, "by_value"), 0.1, struct.pack("<d", 0.1)),
        (POINTER, 0x1000, struct.pack("<Q", 0x1000)),
        (POINTER, SimpleNamespace(address=0x2000), struct.pack("<Q", 0x2000)),
        (Argument("f", 0, 4, "by_value", value_type="f32"), 2, struct.pack("<f", 2.0)),
    ],
)
def test_encoding(argument, value, raw):
    assert encode("k", argument, value) == raw


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (WORD, 1 << 32, "does not fit 32 bits"),
        (WORD, -(1 << 31) - 1, "does not fit 32 bits"),
        (WORD, b"abc", "got 3 bytes"),
        (WORD, "4", "got str"),
        (WORD, SimpleNamespace(address=1), "got a buffer"),
        (WORD, 1e300, "past the largest float"),
        (POINTER, 1.0, "got the float"),
        (POINTER, None, "got NoneType"),
        (POINTER, 1 << 64, "does not fit 64 bits"),
        (WORD, np.complex64(1j), "complex64"),
        (Argument("s", 0, 12, "by_value"), 1.0, "got the float"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(argument, value, message):
    with pytest.raises(LaunchError, match=message) as caught:
        encode("k", argument, value)
    assert argument.name in str(caught.value) and "\n" not in str(caught.value)
