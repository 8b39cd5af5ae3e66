"""A file that a user names is resolved in the same way for every verb, `simgpu.load` and `simgpu.compile`, whatever its
content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu import SimError, asm
from simgpu.tools.cli import main
from tests.support.places import ROOT
from tests.tools.test_capture import write_capture
from tests.tools.test_exec import SCALE, code_object

CUBE = """extern "C" __global__ void cube(float *x) { int i = threadIdx.x; x[i] = x[i] * x[i] * x[i]; }"""
KERNELS = {
    "cube.hip": CUBE,
    "cube.cl": "kernel void cube(global float *x) { int i = get_local_id(0); x[i] = x[i] * x[i] * x[i]; }",
    "cube.s": (ROOT / "tests" / "tools" / "cube.s").read_text(),
}


@pytest.fixture(params=[*KERNELS, "cube.co"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Makes a file whose kernel cubes 64 floats."""
    path = tmp_path / request.param
    if path.suffix == ".co":
        path.write_bytes(asm.assemble(KERNELS["cube.s"], "gfx942"))
    else:
        path.write_text(KERNELS[path.name])
    return path


def test_load(file: Path) -> None:
    kernels = simgpu.load(str(file), target="mi300x", check=True, threads=1)
    x = kernels.device.upload(np.arange(64, dtype="f4"))
    run = kernels["cube"].launch(grid=1, block=64, args=[x])
    assert run.findings == [] and (x.download("f4") == np.arange(64, dtype="f4") ** 3).all()


@pytest.mark.parametrize("words", [
    ["lint"], ["disasm"], *([verb, "--grid", "1", "--arg", "zeros:f32:64"] for verb in ("exec", "check", "time", "lds")),
    ["trace", "--at", "0x0", "--arg", "zeros:f32:64"],
], ids=lambda words: words[0])  # fmt: skip
def test_every_verb_takes_it(file: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    verb, *rest = words
    assert main([verb, str(file), "--target", "mi300x", *rest]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", KERNELS)
def test_compile(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(KERNELS[name])
    code = simgpu.compile(str(path), target="mi300x")
    assert list(simgpu.Device("mi300x").load(code)) == ["cube"]


def test_a_source_that_does_not_compile_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.hip"
    path.write_text(CUBE.replace("x[i] * x", "y[i] * x"))
    with pytest.raises(SimError, match=r"wrong\.hip:1:.*undeclared identifier 'y'"):
        simgpu.compile(str(path), target="mi300x")
    with pytest.raises(SimError, match="names no target"):
        simgpu.compile(str(path))


@pytest.mark.parametrize("words", [
    ["lint"], ["disasm"], ["exec"], ["time"], ["lds"], ["bench", "exec"], ["debug", "--batch", "-ex", "continue"],
], ids=lambda words: " ".join(words[:2]))  # fmt: skip
def test_every_verb_takes_a_capture(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_capture(tmp_path / "capture", code_object(SCALE))
    assert main([*words, str(folder)]) == 0, capsys.readouterr().err
    assert list(simgpu.load(str(folder))) == ["scale"]


def test_a_program_is_pointed_to_its_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(tmp_path / "script.py")]) == 2
    assert "simgpu triton" in capsys.readouterr().err


SCALED = {
    "k.hip": '#include "by.h"\n#include "n.h"\nextern "C" __global__ void k(float *y) { y[threadIdx.x] = BY * SCALE * N; }\n',
    "k.cl": '#include "by.h"\n#include "n.h"\nkernel void k(global float *y) { y[get_local_id(0)] = BY * SCALE * N; }\n',
}


@pytest.mark.parametrize("name", SCALED)
def test_a_source_is_compiled_with_the_options_and_its_neighbours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A header beside the source is found, and relative folders of -I begin where the command runs."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "include").mkdir()
    path = tmp_path / "sources" / name
    path.write_text(SCALED[name])
    (path.parent / "by.h").write_text("#define BY 2\n")
    (tmp_path / "include" / "n.h").write_text("#define N 8\n")
    monkeypatch.chdir(tmp_path)
    given = ["-Iinclude", "-DSCALE=3"]
    kernel = simgpu.load(str(path), "mi300x", given)["k"]
    y = kernel.module.device.zeros(64)
    kernel.launch(grid=1, block=64, args=[y])
    assert (y.download() == 48).all()
    launch = ["--target", "mi300x", "--grid", "1", "--arg", "zeros:f32:64"]
    assert main(["check", str(path), *launch, "--options=-I include -DSCALE=3"]) == 0
    assert main(["lint", str(path), "--target", "mi300x", "--options=-DSCALE=3"]) == 2
    assert "'n.h' file not found" in capsys.readouterr().err


def test_code_that_is_compiled_takes_no_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in ("cube.s", "assembly takes no options"), ("cube.co", "is compiled already"):
        path = tmp_path / name
        path.write_bytes(simgpu.compile(str(ROOT / "tests" / "tools" / "cube.s")) if name == "cube.co" else KERNELS[name].encode())
        assert main(["disasm", str(path), "--options=-O0"]) == 2
        assert said in capsys.readouterr().err
    assert main(["disasm", "k.hip", "--options=-O '"]) == 2
    assert "argument --options: -O ': No closing quotation" in capsys.readouterr().err
    assert main(["disasm", "k.hip", "--options", "-O0"]) == 2
    assert "expected one argument; if it begins with -, write --options=-..." in capsys.readouterr().err


def test_a_debugger_knows_all_variables_of_an_unoptimized_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.hip"
    path.write_text('extern "C" __global__ void k(int *y)\n{\n    int v = 7 * threadIdx.x;\n    y[threadIdx.x] = v + 1;\n}\n')
    launch = ["--target", "mi300x", "--grid", "1", "--arg", "zeros:i32:64"]
    assert main(["debug", str(path), *launch, "--options=-O0", "-ex", "b k.hip:4", "-ex", "c", "-ex", "p v[3]", "--batch"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("21")
