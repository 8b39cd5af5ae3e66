"""Code objects of several linked objects, each with a metadata note of its own, and kernels whose symbols have no size."""

from __future__ import annotations

import itertools
import subprocess
import tracemalloc
from pathlib import Path

import msgpack
import pytest

from simgpu import Device
from simgpu.asm.builder import toolchain
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.elf import PT_NOTE, ElfFile
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import disassemble
from tests.support.kernels import KernelText, assemble, source


def linked(folder: Path, *sources: str, target: str = "gfx90a") -> bytes:
    """Assembles each source to an object and links all to one code object; skips the test if there is no assembler."""
    assemble(target, KernelText("k", "s_nop 0"))
    tools = toolchain.candidates()[0]
    objects = []
    for number, text in enumerate(sources):
        file = folder / f"{number}.s"
        file.write_text(text)
        objects.append(str(file.with_suffix(".o")))
        command = [*tools.clang, *toolchain.CLANG_OPTIONS, f"-mcpu={target}", str(file), "-o", objects[-1]]
        subprocess.run(command, check=True, capture_output=True)
    subprocess.run([*tools.lld, "-shared", *objects, "-o", str(folder / "linked")], check=True, capture_output=True)
    return (folder / "linked").read_bytes()


def with_notes(data: bytes, *documents: object) -> bytes:
    """Returns the file with these metadata notes instead of its own."""
    notes = b""
    for packed in map(msgpack.packb, documents):
        notes += b"\x07\0\0\0" + len(packed).to_bytes(4, "little") + b"\x20\0\0\0AMDGPU\0\0" + packed + bytes(-len(packed) % 4)
    made, elf = bytearray(data), ElfFile(data)
    number = next(number for number, header in enumerate(elf.headers) if header.type == PT_NOTE)
    at = int.from_bytes(data[32:40], "little") + 56 * number
    made[at + 8 : at + 16] = len(data).to_bytes(8, "little")
    made[at + 32 : at + 48] = len(notes).to_bytes(8, "little") * 2
    return bytes(made) + notes


def test_kernels_of_all_linked_objects(tmp_path: Path) -> None:
    """Each has its own arguments and LDS; all can be launched."""
    stored = "s_load_dwordx2 s[2:3], s[0:1], 0x0\nv_mov_b32 v1, 0\nv_mov_b32 v2, {}\ns_waitcnt lgkmcnt(0)\n"
    stored += "global_store_dword v1, v2, s[2:3]"
    groups = [[f"k{n}_{m}" for m in range(n + 1)] for n in range(5)]
    texts = [
        [KernelText(name, stored.format(int(name[1])), args=("buffer", "i32")[: 1 + number % 2]) for name in group]
        for number, group in enumerate(groups)
    ]
    code = linked(tmp_path, *(source("gfx90a", *kernels) for kernels in texts))
    assert list(CodeObject.parse(code).kernels) == list(itertools.chain(*groups))
    gpu = Device("mi210")
    module, out = gpu.load(code), gpu.zeros(1, "u4")
    for name, kernel in module.items():
        kernel.launch(grid=1, block=1, args=[out, 0][: len(kernel.arguments)])
        assert out.download()[0] == int(name[1])
    assert {len(module[name].arguments) for name in ("k0_0", "k1_1")} == {1, 2}


def test_what_joins_of_several_notes() -> None:
    """As in AMD's comgr; of two entries with one name the last counts, as in its runtime."""
    code = assemble("gfx90a", *(KernelText(name, "s_nop 0") for name in "abcd"))

    def note(names: str, **more: object) -> dict[str, object]:
        kernels = [{".name": name, ".symbol": f"{name}.kd", ".kernarg_segment_size": 8 * n} for n, name in enumerate(names)]
        return {"amdhsa.version": [1, 2], "amdhsa.kernels": kernels, **{f"amdhsa.{key}": value for key, value in more.items()}}

    def names(*notes: object) -> str:
        return "".join(CodeObject.parse(with_notes(code, *notes)).kernels)

    assert names(note("ab"), note("cd")) == "abcd"
    assert names(note("a"), note("b", version=[1, 1]), note("c")) == "ac"
    assert names(note("a"), {"amdhsa.kernels": note("b")["amdhsa.kernels"]}) == "a"
    assert names(note("a", printf=["1"]), note("b", printf=["2"]), note("c", printf=["1"])) == "ac"
    assert names(note("a"), note("b", printf=["1"]), note("c", printf=["2"])) == "ab"
    assert names(note("a", target="amdgcn-amd-amdhsa--gfx90a"), note("b", target="amdgcn-amd-amdhsa--gfx942")) == "ab"
    assert names({"amdhsa.version": [1, 2]}, note("a")) == ""
    twice = CodeObject.parse(with_notes(code, note("ab"), note("xcbd"[1:])))
    assert "".join(twice.kernels) == "abcd" and twice.kernels["b"].kernarg_size == 8
    with pytest.raises(DecodeError, match="no map"):
        names(note("a"), ["amdhsa.kernels"])


def test_the_linker_refuses_objects_for_two_targets(tmp_path: Path) -> None:
    assemble("gfx90a", KernelText("k", "s_nop 0"))
    one, other = (source(target, KernelText(f"k{target}", "s_nop 0")) for target in ("gfx90a", "gfx942"))
    with pytest.raises(subprocess.CalledProcessError):
        linked(tmp_path, one, other)


def test_a_kernel_without_a_size_ends_where_the_next_begins(tmp_path: Path) -> None:
    """Tensile's assembly gives no sizes."""
    sizes = (3, 70, 1)
    texts = [source("gfx90a", KernelText(f"k{n}", "s_nop 0\n" * size)) for n, size in enumerate(sizes)]
    whole = linked(tmp_path, *texts)
    sizeless = linked(tmp_path, *(text.replace(".size", "# .size") for text in texts))
    for n, size in enumerate(sizes):
        kernel = CodeObject.parse(sizeless).kernels[f"k{n}"]
        assert CodeObject.parse(whole).kernels[f"k{n}"].code_size == 4 * size + 4
        assert 4 * size + 4 <= kernel.code_size < 4 * size + 4 + 256 or n == 2
        listed = [text for _, text in disassemble(CodeObject.parse(sizeless).read(kernel.entry, kernel.code_size), "gfx90a")]
        assert listed[:size] == ["s_nop 0"] * size and listed[size] == "s_endpgm"


@pytest.mark.slow
def test_ten_thousand_kernels_take_little_memory() -> None:
    """Fewer here: 20 KB a kernel is the limit, 200 MB for 10,000."""
    count, notes = 800, 20
    code = assemble("gfx90a", KernelText("k", "s_nop 0"))
    arguments = [{".name": f"argument_{n}", ".offset": 8 * n, ".size": 8, ".value_kind": "by_value"} for n in range(40)]
    entries = [{".name": f"kernel_{n}", ".symbol": "k.kd", ".kernarg_segment_size": 320, ".args": arguments} for n in range(count)]
    data = with_notes(code, *({"amdhsa.version": [1, 2], "amdhsa.kernels": entries[n::notes]} for n in range(notes)))
    tracemalloc.start()
    try:
        kernels = CodeObject.parse(data).kernels
        assert len(kernels) == count and len(kernels["kernel_799"].arguments) == 40
        assert tracemalloc.get_traced_memory()[1] < 20_000 * count - len(data)
        assert sum(len(kernel.arguments) for kernel in kernels.values()) == 40 * count
        assert tracemalloc.get_traced_memory()[1] < 20_000 * count
    finally:
        tracemalloc.stop()
