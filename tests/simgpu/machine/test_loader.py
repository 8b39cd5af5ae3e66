"""Object files are loaded as LLVM loads them, and LLVM loads what is left."""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.errors import SimError
from simgpu.machine import loader
from simgpu.machine.compiling.object_file import ModuleSource, object_code
from simgpu.machine.host import ask, host
from simgpu.machine.loader import ElfFile, Loader, Unsupported, load_elf

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64", reason="LLVM loads all object files of this host"
)

TABLE = '@"table" = private constant [4 x i64] [i64 2, i64 3, i64 5, i64 7], align 64\n'
LOOKUP = (
    'define i64 @"h1"(i64 %x) {\n%i = and i64 %x, 3\n%p = getelementptr [4 x i64], [4 x i64]* @"table", i64 0, i64 %i\n'
    "%y = load i64, i64* %p\nret i64 %y\n}\n"
)
# A switch becomes a table of places in the code, and f64 constants become data.
SWITCH = """define i64 @"h2"(i64 %x) {
switch i64 %x, label %e [i64 0, label %a
 i64 1, label %b
 i64 2, label %c
 i64 3, label %d]
a:
 %ya = call i64 @"h1"(i64 %x)
 ret i64 %ya
b:
 ret i64 77
c:
 %s = sitofp i64 %x to double
 %t = fmul double %s, 1.25e3
 %u = fptosi double %t to i64
 ret i64 %u
d:
 ret i64 -1
e:
 %z = mul i64 %x, 10
 ret i64 %z
}
"""
WANT = {0: 2, 1: 77, 2: 2500, 3: -1, 4: 40, -5: -50}


def compiled(*texts: str) -> bytes:
    return object_code(host().machine, *(ModuleSource(text) for text in texts))


def call(address: int, *args: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(address)(*args))


def without_llvm(self: Loader, code: bytes, names: set[str]) -> None:
    raise AssertionError(names)


@pytest.mark.parametrize("files", [
    [[TABLE + LOOKUP], ['declare i64 @"h1"(i64)\n' + SWITCH]], [[TABLE + LOOKUP, 'declare i64 @"h1"(i64)\n' + SWITCH]],
], ids=["two files", "one file"])  # fmt: skip
@pytest.mark.parametrize("by_llvm", [(), (0,), (1,), (0, 1)])
def test_functions_find_their_constants_and_each_other(
    files: Sequence[Sequence[str]], by_llvm: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads each file without LLVM or with it, in all combinations."""
    made = Loader()
    for number, texts in enumerate(files):
        with monkeypatch.context() as patch:
            if number in by_llvm:
                patch.setattr(loader, "ELF64", b"none")
            else:
                patch.setattr(Loader, "_load_by_llvm", without_llvm)
            made.load(compiled(*texts), ["h1", "h2"])
    assert {x: call(made.addresses["h2"], x) for x in WANT} == WANT


def test_functions_of_the_c_library_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "_load_by_llvm", without_llvm)
    copy = (
        'declare i8* @"memcpy"(i8*, i8*, i64)\ndefine i64 @"h3"(i64 %to, i64 %from, i64 %n) {\n'
        "%a = inttoptr i64 %to to i8*\n%b = inttoptr i64 %from to i8*\n"
        '%c = call i8* @"memcpy"(i8* %a, i8* %b, i64 %n)\n%d = ptrtoint i8* %c to i64\nret i64 %d\n}\n'
    )
    made = Loader()
    made.load(compiled(copy), ["h3"])
    source, target = ctypes.create_string_buffer(bytes(range(50))), ctypes.create_string_buffer(51)
    places = ctypes.addressof(target), ctypes.addressof(source)
    assert call(made.addresses["h3"], *places, 50) == places[0] and target.raw[:51] == source.raw


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=4), st.sampled_from([1, 4, 16, 64]))
def test_data_keeps_its_alignment(contents: list[bytes], align: int) -> None:
    texts = []
    for number, content in enumerate(contents):
        escaped = "".join(f"\\{byte:02x}" for byte in content)
        data = f'@"d{number}" = private constant [{len(content)} x i8] c"{escaped}", align {align}\n'
        place = f'ptrtoint ([{len(content)} x i8]* @"d{number}" to i64)'
        texts.append(f'{data}define i64 @"f{number}"() {{\nret i64 {place}\n}}\n')
    found = load_elf(compiled(*texts), {})
    for number, content in enumerate(contents):
        place = call(found[f"f{number}"])
        assert place % align == 0 and ctypes.string_at(place, len(content)) == content


RETURN = 'define i64 @"h4"() {\nret i64 4\n}\n'


def of_another_machine() -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return object_code(ask("aarch64-unknown-linux-gnu", "generic").machine, ModuleSource(RETURN))


def relative() -> bytes:
    """Returns a file whose one relocation is a distance in four bytes."""
    code = bytearray(compiled(TABLE + LOOKUP))
    file = ElfFile(bytes(code))
    (table,) = [part for part in file.sections if part.type == loader.RELOCATIONS and part.info in file.places]
    struct.pack_into("<I", code, table.offset + 8, 2)  # R_X86_64_PC32
    return bytes(code)


VARIABLE = '@"n" = internal global i64 4\ndefine i64 @"h4"() {\n%x = load volatile i64, i64* @"n"\nret i64 %x\n}\n'
UNKNOWN = 'declare i64 @"nobody"()\ndefine i64 @"h4"() {\n%x = call i64 @"nobody"()\nret i64 %x\n}\n'


@pytest.mark.parametrize("code", [
    pytest.param(of_another_machine, id="aarch64"), pytest.param(relative, id="relative"),
    pytest.param(lambda: compiled(VARIABLE), id="data"), pytest.param(lambda: compiled(UNKNOWN), id="unknown"),
    pytest.param(lambda: b"\xcf\xfa\xed\xfe" + bytes(100), id="Mach-O"), pytest.param(lambda: b"", id="empty"),
])  # fmt: skip
def test_other_files_are_left_to_llvm(code: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = code()
    with pytest.raises(Unsupported):
        load_elf(made, {})
    given = []
    monkeypatch.setattr(Loader, "_load_by_llvm", lambda self, code, names: given.append((code, names)))
    Loader().load(made, ["h4"])
    assert given == [(made, {"h4"})]


@pytest.mark.parametrize("step", ["mmap", "mprotect"])
def test_a_system_without_executable_memory_is_named(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __getattr__(self, name: str) -> Any:
            if name == step:
                return lambda *args: loader.FAILED if step == "mmap" else -1
            return getattr(real, name)

    real = loader._libc()
    monkeypatch.setattr(loader, "_libc", Refusing)
    with pytest.raises(SimError, match="handlers need executable memory"):
        load_elf(compiled(RETURN), {})
