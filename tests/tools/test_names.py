"""Names from a file never act as a terminal's control codes or a table's markup, in any verb."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools import cli
from simgpu.tools.robustness.hostile import rebuild
from tests.support.kernels import KernelText, assemble

HOSTILE = "\x1b]0;owned\x07[red]k[/red]\u202e\r\n::error::"
SHOWN = r"\x1b]0;owned\x07[red]k[/red]\u202e\r\n::error::"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes a code object whose kernel and argument have such names."""
    good = assemble("gfx90a", KernelText("k", "s_nop 0", ("buffer",)))
    document = CodeObject.parse(good).metadata.document()
    kernel = document["amdhsa.kernels"][0]
    kernel[".name"], kernel[".args"][0][".name"] = HOSTILE, HOSTILE
    path = tmp_path_factory.mktemp("names") / "k.co"
    path.write_bytes(rebuild(good, note=msgpack.packb(document)))
    return str(path)


@pytest.mark.parametrize("command", [
    ("disasm",), ("disasm", "--json"), ("disasm", "--kernel", "other"),
    ("exec", "--arg", "zeros:u32:64", "--grid", "1", "--block", "64"), ("exec", "--arg", "zeros:u32:64", "--grid", "1", "--json"),
    ("exec", "--grid", "1"), ("exec", "--kernel", SHOWN, "--arg", "i32:1", "--grid", "1"),
    ("check", "--grid", "1"),
    ("trace", "--arg", "zeros:u32:64", "--grid", "1", "--list"),
], ids=" ".join)  # fmt: skip
def test_no_verb_prints_a_control_character(file: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    verb, *options = command
    cli.main([verb, file, *options])
    out, err = capsys.readouterr()
    said = out + err
    assert said and all(character.isprintable() or character == "\n" for character in said), said
    assert "\n::error::" not in said
    assert "owned" in said or verb == "trace"
    if "--json" in options and verb == "disasm":
        assert json.loads(out)["kernels"][0]["name"] == SHOWN


def test_the_kernel_is_found_by_its_printable_name(file: str) -> None:
    assert list(CodeObject.parse(Path(file).read_bytes()).kernels) == [SHOWN]
