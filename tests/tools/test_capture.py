"""Captures of kerncap: replayed at their addresses, and refused with a message if a part is missing."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from simgpu.tools.cli import main
from tests.tools.test_exec import SCALE, code_object, error

X, Y = 0x7F0000200000, 0x7F0000400000


def write_capture(folder: Path, code: bytes, elements: int = 128) -> Path:
    """Writes a capture of y = 2 x + 1 over 128 elements; y's region has `elements`."""
    (folder / "memory").mkdir(parents=True)
    (folder / "kernel.hsaco").write_bytes(code)
    (folder / "kernarg.bin").write_bytes(struct.pack("<QQfi", X + 256, Y, 2.0, 1) + bytes(64))
    isa = "amdgcn-amd-amdhsa--gfx908:sramecc+:xnack-"
    given = {"mangled_name": "scale", "isa_name": isa, "grid": [128, 1, 1], "block": [64, 1, 1], "group_segment_size": 0}
    (folder / "dispatch.json").write_text(json.dumps(given))
    (folder / f"memory/region_{X:x}.bin").write_bytes(np.arange(192, dtype=np.float32).tobytes())
    (folder / f"memory/region_{Y:x}.bin").write_bytes(bytes(4 * elements))
    regions = [{"base": X, "size": 768, "is_pool": True}, {"base": Y, "size": 4 * elements, "is_pool": True}]
    (folder / "memory_regions.json").write_text(json.dumps({"regions": regions}))
    return folder


@pytest.fixture(scope="module")
def code() -> bytes:
    return code_object(SCALE)


def test_a_dispatch_is_replayed(code: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_capture(tmp_path / "capture", code)
    assert main(["check", "--capture", str(folder)]) == 0 and main(["check", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["exec", str(folder), "--save", f"1={tmp_path / 'y.npy'}"]) == 0
    assert np.array_equal(np.load(tmp_path / "y.npy").view(np.float32), 2 * np.arange(64, 192, dtype=np.float32) + 1)


def test_a_dispatch_is_debugged(code: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A capture's memory has no types, so elements go by their addresses."""
    folder, element = write_capture(tmp_path / "capture", code), f"{Y + 28:#x}"
    assert main(["why", element, str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"memory at {element} = 143, by workgroup 0,0,0") and f"memory at {X + 256 + 28:#x}" in said
    assert main(["debug", str(folder), "-ex", f"watch {element}", "-ex", "continue", "-ex", "findings", "--batch"]) == 0
    said = capsys.readouterr().out
    assert "0x00000000 -> 0x430f0000" in said and "nothing was found" in said
    assert main(["why", "0x10", str(folder)]) == 2 and "0x10" in capsys.readouterr().err


def test_an_access_past_the_memory_names_the_argument(code: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_capture(tmp_path / "capture", code, elements=100)
    assert main(["check", "--capture", str(folder)]) == 1
    out = capsys.readouterr()
    assert "argument y of 400 bytes" in out.out and "lanes 36" in out.out and "kernel.s:" in out.out
    assert out.err == "simgpu check: MemoryFault: the launch ended there\n"


def test_variables_of_the_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = SCALE.replace("s_load_dwordx2 s[8:9], s[0:1], 0x10", "s_getpc_b64 s[12:13]\n  s_add_u32 s12, s12, factor@rel32@lo+4\n"
                         "  s_addc_u32 s13, s13, factor@rel32@hi+12\n  s_load_dwordx2 s[8:9], s[12:13], 0x0")  # fmt: skip
    body += "\n.data\n.globl factor\n.protected factor\n.p2align 3\n.type factor,@object\n.size factor, 8\nfactor: .quad 0\n.text"
    folder = write_capture(tmp_path / "capture", code_object(body))
    (folder / "module_variables").mkdir()
    (folder / "module_variables" / "f.bin").write_bytes(struct.pack("<fi", 4.0, 3))
    entry = {"name": "factor", "size": 8, "blob": "module_variables/f.bin"}
    (folder / "module_variables.json").write_text(json.dumps({"variables": [entry, {**entry, "name": "elsewhere"}]}))
    assert main(["exec", str(folder), "--save", f"1={tmp_path / 'y.npy'}"]) == 0
    assert np.array_equal(np.load(tmp_path / "y.npy").view(np.float32), 4 * np.arange(64, 192, dtype=np.float32) + 3)
    (folder / "module_variables" / "f.bin").write_bytes(b"12")
    capsys.readouterr()
    assert "factor has 8 bytes" in error(capsys, "exec", str(folder), status=2)


def broken(folder: Path, what: str) -> None:
    regions = json.loads((folder / "memory_regions.json").read_text())
    match what:
        case "kernarg.bin is missing":
            (folder / "kernarg.bin").unlink()
        case "20 bytes, argument bias ends at 24":
            (folder / "kernarg.bin").write_bytes((folder / "kernarg.bin").read_bytes()[:20])
        case "no JSON":
            (folder / "dispatch.json").write_text("{")
        case "list, not an object":
            (folder / "memory_regions.json").write_text("[]")
        case "grid is [0]":
            (folder / "dispatch.json").write_text(json.dumps({"mangled_name": "scale", "grid": [0], "block": [64]}))
        case "0 bytes of the 768":
            (folder / f"memory/region_{X:x}.bin").unlink()
        case "100 bytes of the 768":
            (folder / f"memory/region_{X:x}.bin").write_bytes(bytes(100))
        case "overlaps 768 bytes":
            regions["regions"].append({"base": X + 64, "size": 64})
            (folder / "memory_regions.json").write_text(json.dumps(regions))
        case "is none that a GPU allocates":
            regions["regions"].append({"base": X + 1025, "size": 64})
            (folder / "memory_regions.json").write_text(json.dumps(regions))
        case "no list of objects":
            (folder / "memory_regions.json").write_text('{"regions": [3]}')
        case "base is None, not a whole number":
            (folder / "memory_regions.json").write_text('{"regions": [{"size": 64}]}')
        case "region_fff00000.bin: 0 bytes of the 1,152,921,504,606,846,976":  # more memory than exists, and no file holds it
            (folder / "memory_regions.json").write_text(json.dumps({"regions": [{"base": 0xFFF00000, "size": 1 << 60}]}))
        case "maximum recursion depth":
            (folder / "dispatch.json").write_text("[" * 100_000)
        case "'../secret' is no file of the capture":
            (folder.parent / "secret").write_bytes(bytes(8))
            entry = {"name": "scale", "size": 8, "blob": "../secret"}
            (folder / "module_variables.json").write_text(json.dumps({"variables": [entry]}))
        case "kernel.hsaco":
            (folder / "kernel.hsaco").write_bytes(b"\x7fELF")


@pytest.mark.parametrize("what", [
    "kernarg.bin is missing", "20 bytes, argument bias ends at 24", "no JSON", "list, not an object", "grid is [0]",
    "0 bytes of the 768", "100 bytes of the 768", "overlaps 768 bytes", "is none that a GPU allocates", "kernel.hsaco",
    "no list of objects", "base is None, not a whole number", "region_fff00000.bin: 0 bytes of the 1,152,921,504,606,846,976",
    "maximum recursion depth", "'../secret' is no file of the capture",
])  # fmt: skip
def test_what_is_damaged_is_said_in_a_line(code: bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_capture(tmp_path / "capture", code)
    broken(folder, what)
    for command in (["exec", str(folder)], ["check", "--capture", str(folder)]):
        assert what in error(capsys, *command, status=2)


def test_options_that_a_capture_has_itself(code: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_capture(tmp_path / "capture", code)
    assert "leave these options out" in error(capsys, "exec", str(folder), "--grid", "1", status=2)
    assert "--capture FOLDER" in error(capsys, "check", status=2)
    assert "give a FILE" in error(capsys, "check", "--capture", str(folder), str(folder), status=2)
    assert "--grid" in error(capsys, "exec", str(folder / "kernel.hsaco"), status=2)
