"""Parameter types from debug information match the source and mangled names. Damaged information gives no types."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pytest

from simgpu.hardware.code_object import debug, dwarf
from simgpu.hardware.code_object.arguments import Geometry, assumptions, pack
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.elf import ElfFile
from simgpu.hardware.code_object.mangled import parameter_types
from simgpu.hardware.code_object.references import CHAIN_LIMIT
from simgpu.hardware.errors import LaunchError
from simgpu.tools.robustness.hostile import NewSection, rebuild
from tests.support.clang import linked
from tests.support.kernels import KernelText, assemble

ONE = Geometry.of(1, 64)
FLAVOURS = [
    *(["-O2", f"-gdwarf-{version}"] for version in (2, 3, 4, 5)), ["-O0", "-gdwarf-4"], ["-O0", "-gdwarf-5"],
    ["-O2", "-gdwarf-5", "-gdwarf64"], ["-O2", "-gdwarf-5", "-gz=zlib"], ["-O2", "-gdwarf-4", "-gz=zlib"],
]  # fmt: skip
# C++ -> the type of an argument.
SPELLED = {
    "float": "f32", "double": "f64", "_Float16": "f16", "__bf16": "bf16", "bool": "u8", "char": "i8", "signed char": "i8",
    "unsigned char": "u8", "short": "i16", "unsigned short": "u16", "int": "i32", "unsigned": "u32", "long": "i64",
    "unsigned long": "u64", "long long": "i64", "unsigned long long": "u64", "wchar_t": "i32", "char16_t": "u16", "char32_t": "u32",
    "real": "f32", "fixed": "f32", "word": "u16", "deep": "f64", "const int": "i32", "volatile float": "f32",
    "G float *": "pointer", "G void *": "pointer", "G float *__restrict": "pointer", "G const deep *const": "pointer",
    "Pair": "", "Single": "", "four": "",
}  # fmt: skip
ENUMERATIONS = {"Plain": "u32", "Signed": "i32", "Byte": "u8", "Wide": "i64", "Flag": "u8", "const Byte": "u8"}
HEAD = """#define G __attribute__((address_space(1)))
typedef float real; typedef const real fixed; using word = unsigned short;
typedef double deep0; typedef volatile deep0 deep1; typedef const deep1 deep;
struct Pair { int a; float b; }; struct Single { float x; }; typedef float four __attribute__((ext_vector_type(4)));
enum Plain { A = 1 }; enum Signed { B = -1 }; enum Byte : unsigned char { C }; enum class Wide : long { D };
enum class Flag : bool { E };
"""


def signatures(rng: random.Random) -> list[list[str]]:
    """Returns parameters of kernels: every type, and random ones."""
    every = [*SPELLED, *ENUMERATIONS]
    return [*([one] for one in every), *(rng.choices(every, k=rng.randrange(2, 12)) for _ in range(20))]


@pytest.mark.parametrize("options", FLAVOURS, ids=" ".join)
def test_they_are_the_source_s_and_the_mangled_name_s(options: list[str]) -> None:
    """Each signature is tested as an `extern "C"` kernel and as a kernel with a mangled name."""
    wanted, text = {}, [HEAD]
    for number, types in enumerate(signatures(random.Random(1))):
        told = tuple({**SPELLED, **ENUMERATIONS}[one] for one in types)
        parameters = ", ".join(f"{one} a{place}" for place, one in enumerate(types))
        for prefix, name in (('extern "C" ', f"plain{number}"), ("", f"kernel{number}")):
            text.append(f"{prefix}__attribute__((amdgpu_kernel)) void {name}({parameters}) {{}}")
            wanted[name] = types, told
    code = CodeObject.parse(linked("\n".join(text), "-std=c++17", *options, language="c++"))
    assert len(code.kernels) == len(wanted)
    for name, kernel in code.kernels.items():
        mangled = parameter_types(name)
        types, told = wanted[name if mangled is None else next(key for key in wanted if f"{len(key)}{key}" in name)]
        known = code.debug.parameters(name, len(types))
        assert tuple(parameter.type for parameter in known) == told, (types, name)
        assert [parameter.name for parameter in known] == [argument.name for argument in kernel.named_arguments]
        assert [parameter.name for parameter in known] == [f"a{place}" for place in range(len(types))]
        for argument, type_ in zip(kernel.typed_arguments, told, strict=True):
            assert argument.value_type == ("" if type_ == "pointer" else type_)
        if mangled is not None:
            assert mangled == tuple("" if one in ENUMERATIONS else type_ for one, type_ in zip(types, told, strict=True)), types
    assert sum(parameter_types(name) is None for name in code.kernels) == len(wanted) // 2


def test_what_a_kernel_s_name_means() -> None:
    """It is a linker's name: not a method, a namespace's function or a declaration of the same name, whatever their parameters."""
    source = """namespace one { __attribute__((noinline, used)) int k(double x) { return x; } }
    struct S { __attribute__((noinline)) int k(long x) { return x + a; } int a; };
    struct T { S s; void (*f)(S *, float, double); };
    extern "C" __attribute__((amdgpu_kernel)) void k(float x, T *t) { t->s.a = t->s.k(one::k(x)); }
    """
    for version in (4, 5):
        code = CodeObject.parse(linked(source, "-O1", f"-gdwarf-{version}", language="c++"))
        assert code.debug.parameters("k", 2) == (("x", "f32"), ("t", "pointer"))
        assert code.debug.parameters("k", 1) == code.debug.parameters("one", 1) == ()
    lines = CodeObject.parse(linked(source, "-O1", "-gline-tables-only", language="c++"))
    assert lines.debug.parameters("k", 2) == ()


# -- when it is read ------------------------------------------------------------------------------

TYPES = "__attribute__((amdgpu_kernel)) void {name}(float a, __attribute__((address_space(1))) float *p) {{ *p = a; }}"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows with each reading of debug sections."""
    found: list[int] = []

    class Counted(dwarf.DebugSections):
        def __init__(self, elf: ElfFile) -> None:
            found.append(1)
            super().__init__(elf)

    monkeypatch.setattr(debug, "DebugSections", Counted)
    return found


def test_it_is_read_once_and_only_where_a_number_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch)
    kernel = CodeObject.parse(linked(TYPES.format(name="k"), "-O2", "-g")).kernels["k"]
    for certain in (b"1234", np.float32(2), np.int32(2)):
        pack(kernel, [certain, 0], ONE)
    assert read == [] and kernel.arguments[0].value_type == ""
    for value in (2, 2.0, True, 2):
        assert pack(kernel, [value, 0], ONE)[:4] == struct.pack("<f", value)
        assert assumptions(kernel, [value, 0]) == ()
    assert read == [1]
    mangled = CodeObject.parse(linked(TYPES.format(name="k"), "-O2", "-g", language="c++")).kernels["_Z1kfPU3AS1f"]
    assert pack(mangled, [2, 0], ONE)[:4] == struct.pack("<f", 2) and read == [1]


# -- made by hand ---------------------------------------------------------------------------------

# Code, tag, children, then attribute and form: 1 a unit, 2 a function with a name, 3 a parameter with a type, 4 a typedef,
# 5 a base type with encoding and size, 6 an enumeration with a size, 7 a parameter with a type by signature, 8 one with its origin,
# 9 the type of a function.
ABBREVIATIONS = bytes((
    1, 0x11, 1, 0, 0, 2, 0x2E, 1, 0x03, 0x08, 0, 0, 3, 0x05, 0, 0x49, 0x13, 0, 0, 4, 0x16, 0, 0x49, 0x13, 0, 0,
    5, 0x24, 0, 0x3E, 0x0B, 0x0B, 0x0B, 0, 0, 6, 0x04, 0, 0x0B, 0x0B, 0, 0, 7, 0x05, 0, 0x49, 0x20, 0, 0,
    8, 0x05, 0, 0x31, 0x10, 0, 0, 9, 0x15, 1, 0, 0, 0,
))  # fmt: skip
FIRST = 11  # of the first entry of the first unit
BASE = FIRST + 1  # and the one after it
FLOAT, SIGNED = bytes((5, 4, 4)), bytes((5, 5, 4))


def unit(entries: bytes) -> bytes:
    """A unit of DWARF 4 with these entries and its end."""
    body = struct.pack("<HIB", 4, 0, 8) + b"\x01" + entries + b"\0"
    return struct.pack("<I", len(body)) + body


def function(*parameters: bytes, name: bytes = b"k") -> bytes:
    return b"\x02" + name + b"\0" + b"".join(parameters) + b"\0"


def of_type(place: int) -> bytes:
    return b"\x03" + struct.pack("<I", place)


def chain(length: int) -> bytes:
    """Returns a float, typedefs each of the one before, and a function of the last."""
    places = [BASE, *(BASE + len(FLOAT) + 5 * step for step in range(length))]
    return FLOAT + b"".join(b"\x04" + struct.pack("<I", place) for place in places[:-1]) + function(of_type(places[-1]))


@pytest.fixture(scope="module")
def good() -> bytes:
    """Returns a kernel with a 4-byte argument whose type only debug information could give, and without that information."""
    return assemble("gfx90a", KernelText("k", "s_nop 0", ("f32",))).replace(b".value_type\xa3f32", b".xalue_type\xa3f32")


def told(good: bytes, info: bytes, abbreviations: bytes = ABBREVIATIONS) -> str:
    """Returns the argument's type according to .debug_info."""
    sections = [NewSection(b".debug_info", 1, info), NewSection(b".debug_abbrev", 1, abbreviations)]
    kernel = CodeObject.parse(rebuild(good, sections, replace=True)).kernels["k"]
    assert kernel.arguments[0].value_type == ""
    assert len(pack(kernel, [2], ONE)) == kernel.kernarg_size
    assert bool(assumptions(kernel, [2])) == (kernel.typed_arguments[0].value_type == "")
    return kernel.typed_arguments[0].value_type


def test_the_smallest_one_tells(good: bytes) -> None:
    one = FLOAT + function(of_type(BASE))
    assert told(good, unit(one)) == "f32"
    assert told(good, unit(SIGNED + function(of_type(BASE)))) == "i32"
    assert told(good, unit(bytes((6, 4)) + function(of_type(BASE)))) == "i32"  # an enumeration without an underlying type
    assert told(good, unit(b"") + unit(one)) == "f32"
    assert told(good, unit(one + b"\x09" + of_type(BASE) + b"\0" + FLOAT)) == "f32"  # its parameters are not the kernel's
    assert told(good, unit(FLOAT + function(b"\x09" + of_type(BASE) + b"\0", of_type(BASE)))) == "f32"
    assert told(good, unit(chain(CHAIN_LIMIT - 1))) == "f32"
    abstract = unit(FLOAT + function(of_type(BASE), name=b"other"))
    instance = function(b"\x08" + struct.pack("<I", abstract.index(of_type(BASE))))
    assert told(good, abstract + unit(instance)) == "f32"  # a parameter of another unit
    assert told(good, unit(one + function(of_type(BASE)))) == "f32"  # twice the same
    assert told(good, unit(one + function(of_type(BASE), of_type(BASE)))) == "f32"  # another count


UNKNOWN: dict[str, bytes] = {
    "no function": unit(FLOAT),
    "another name": unit(FLOAT + function(of_type(BASE), name=b"kk")),
    "too few parameters": unit(FLOAT + function()),
    "too many parameters": unit(FLOAT + function(of_type(BASE), of_type(BASE))),
    "functions that differ": unit(FLOAT + SIGNED + function(of_type(BASE)) + function(of_type(BASE + 3))),
    "a size that is not the argument's": unit(bytes((5, 4, 8)) + function(of_type(BASE))),
    "a float of three bytes": unit(bytes((5, 4, 3)) + function(of_type(BASE))),
    "an encoding of no number": unit(bytes((5, 3, 4)) + function(of_type(BASE))),
    "a typedef of itself": unit(b"\x04" + struct.pack("<I", BASE) + function(of_type(BASE))),
    "a ring of typedefs": unit(b"\x04" + struct.pack("<I", BASE + 5) + b"\x04" + struct.pack("<I", BASE) + function(of_type(BASE))),
    "a function as a type": unit(function(of_type(BASE))),
    "a parameter of itself": unit(function(b"\x08" + struct.pack("<I", BASE + 3))),
    "a type by signature": unit(FLOAT + function(b"\x07" + bytes(8))),
    "a type outside the unit": unit(FLOAT + function(of_type(0x7FFFFFFF))),
    "a type within an entry": unit(FLOAT + function(of_type(BASE + 2))),
    "an origin outside the section": unit(function(b"\x08" + struct.pack("<I", 0xFFFFFFFF))),
    "an abbreviation that is not there": unit(b"\x30" + FLOAT + function(of_type(BASE + 1))),
    "a name without an end": unit(b"\x02k")[:-1],
    "a unit cut off": unit(FLOAT + function(of_type(BASE)))[:-2],
    "a chain past the limit": unit(chain(CHAIN_LIMIT)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_tells_nothing(good: bytes, name: str) -> None:
    assert told(good, UNKNOWN[name]) == ""


def test_a_header_is_no_type(good: bytes) -> None:
    """In DWARF 5, bytes 6 to 8 here could be read as a base type: abbreviation 5, DW_ATE_unsigned_char, four bytes."""
    for place, type_ in ((6, ""), (21, "f32")):
        body = struct.pack("<HBBIQ", 5, 5, 8, 4, 0) + b"\x01" + FLOAT + function(of_type(place)) + b"\0"
        assert told(good, struct.pack("<I", len(body)) + body, bytes(4) + ABBREVIATIONS) == type_


@pytest.mark.slow
def test_too_much_of_it_tells_nothing(good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no warning, because the note has the information. Types do not use up the limit for lines."""
    monkeypatch.setattr(dwarf, "STEP_LIMIT", 20_000)
    entries = FLOAT + function(of_type(BASE))
    assert told(good, unit(entries + b"\x04\0\0\0\0" * 1000)) == "f32"
    large = unit(entries + b"\x04\0\0\0\0" * dwarf.STEP_LIMIT)
    packed = struct.pack("<IIQQ", 1, 0, len(large), 1) + zlib.compress(large)
    wide = struct.pack("<IIQQ", 1, 0, 0, 1) + zlib.compress(bytes(dwarf.SECTION_LIMIT + 1))
    for section in (NewSection(b".debug_info", 1, packed, 0x800), NewSection(b".debug_info", 1, wide, 0x800)):
        code = CodeObject.parse(rebuild(good, [section, NewSection(b".debug_abbrev", 1, ABBREVIATIONS)], replace=True))
        assert code.kernels["k"].typed_arguments == code.kernels["k"].explicit_arguments
        assert assumptions(code.kernels["k"], [2])


def test_long_names_are_not_mistaken() -> None:
    """A name is not confused with another one that has the same beginning: the file has no types for the second kernel."""
    long = "k" * (dwarf.TEXT_LIMIT + 5)
    first, second, third = (TYPES.format(name=name) for name in (long, long[:-5], long[:-6]))
    code = CodeObject.parse(linked(f"{first}\n__attribute__((nodebug)) {second}\n{third}", "-O1", "-g"))
    found = {len(name) - dwarf.TEXT_LIMIT: kernel.typed_arguments[0].value_type for name, kernel in code.kernels.items()}
    assert found == {5: "", 0: "", -1: "f32"}


@pytest.mark.parametrize("version", [4, 5])
def test_damage_ends_in_types_or_in_none(version: int) -> None:
    """Random bytes of debug sections are replaced: no exception, and packed values are numbers of some type."""
    data = linked(TYPES.format(name="k"), "-O2", f"-gdwarf-{version}")
    elf = ElfFile(data)
    places = [
        range(s.offset, s.offset + s.size) for s in elf.sections_named((b".debug_info", b".debug_abbrev", b".debug_str")).values()
    ]
    rng, outcomes = random.Random(version), set[str]()
    for _ in range(600):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 3, 20))):
            damaged[rng.choice(rng.choice(places))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        kernel = CodeObject.parse(bytes(damaged)).kernels["k"]
        outcomes.add(kernel.typed_arguments[0].value_type)
        assert pack(kernel, [2, 0], ONE)[:4] in (struct.pack("<f", 2), struct.pack("<i", 2))
    assert {"f32", ""} <= outcomes <= {"f32", "", "i32", "u32"}


def test_a_float_for_an_integer_is_refused() -> None:
    kernel = CodeObject.parse(linked(TYPES.format(name="k").replace("float a", "int a"), "-O2", "-g")).kernels["k"]
    with pytest.raises(LaunchError, match=r"got the float 2.5"):
        pack(kernel, [2.5, 0], ONE)
