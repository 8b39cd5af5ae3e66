"""Snapshots and `simgpu trace`: the right visit of the right wave; results stay the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder.toolchain import assemble
from simgpu.debugger.snapshot import trace
from simgpu.hardware.errors import LaunchError, MemoryFault, ToolchainError
from simgpu.hardware.isa.instruction import Reg
from simgpu.hardware.mfma import find
from simgpu.matrix.one_mfma import from_registers, to_registers
from simgpu.tools.cli import main
from simgpu.tools.matrix.kernel import NAME, FirstRegisters, clear, kernel, loads, matrix_line, stores

Capture = pytest.CaptureFixture[str]
LOOP = """
s_mov_b32 s20, 0
v_lshlrev_b32 v3, 2, v0
loop:
s_add_u32 s20, s20, 1
v_add_u32 v3, s20, v3
s_barrier
s_cmp_lt_u32 s20, 5
s_cbranch_scc1 loop
v_mov_b32 v4, 0
done:
global_store_dword v1, v3, s[6:7]
""".strip().splitlines()


def built(target: str, body: list[str]) -> bytes:
    try:
        return assemble(kernel(target, body), target)
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def looping() -> tuple[simgpu.Device, simgpu.Kernel, dict[str, int]]:
    gpu = simgpu.Device("gfx90a")
    module = gpu.load(built("gfx90a", LOOP))
    start = module.code.kernels[NAME].start
    labels = {name: module.code.symbols[name].address - start for name in ("loop", "done")}
    return gpu, module[NAME], labels


def test_every_visit_of_a_loop_in_order(looping) -> None:
    gpu, entry, at = looping
    out = gpu.alloc(4096)
    found = trace(entry, [at["loop"]], grid=3, block=256, args=[out, out], group=(1, 0, 0), wave=2, hits=9)
    assert [int(s.scalars[20]) for s in found] == [0, 1, 2, 3, 4] and [s.hit for s in found] == list(range(5))
    lanes = 4 * np.arange(64) * 4
    assert [(s.vgprs[3] == lanes + sum(range(s.hit + 1))).all() for s in found] == [True] * 5
    assert all(s.text == "s_add_u32 s20, s20, 1" and s.exec == 2**64 - 1 and s.wave == 2 for s in found)
    (later,) = trace(entry, [at["loop"]], grid=3, block=256, args=[out, out], skip=3)
    assert later.hit == 3 and int(later.registers(Reg("s", 20))[0]) == 3


def test_tracing_leaves_the_results_and_later_launches_alone(looping) -> None:
    gpu, entry, at = looping
    plain, traced = gpu.alloc(4096), gpu.alloc(4096)
    before = entry.launch(grid=1, block=256, args=[plain, plain])
    everything = range(0, at["done"], 4)
    found = trace(entry, everything, block=256, args=[traced, traced], hits=10**6)
    assert len(found) == before.profile[at["loop"]] // 4 * 5 + (len([s for s in found if s.pc < at["loop"]]) + 1)
    assert (traced.download(np.uint32) == plain.download(np.uint32)).all()
    again = gpu.alloc(4096)
    after = entry.launch(grid=1, block=256, args=[again, again])
    assert after.instructions == before.instructions
    assert (again.download(np.uint32) == plain.download(np.uint32)).all()


def test_a_stop_as_the_first_instruction_and_at_a_barrier(looping) -> None:
    gpu, entry, at = looping
    out = gpu.alloc(4096)
    for wave in range(4):
        (first,) = trace(entry, [0], block=256, args=[out, out], wave=wave)
        assert first.pc == 0 and (first.vgprs[0] & 0x3FF == np.arange(64 * wave, 64 * wave + 64)).all()
        barriers = trace(entry, [at["loop"] + 8], block=256, args=[out, out], wave=wave, hits=9)
        assert [s.text for s in barriers] == ["s_barrier"] * 5


def test_faults_and_wrong_places_are_errors(looping) -> None:
    gpu, entry, at = looping
    with pytest.raises(MemoryFault):
        trace(entry, [at["loop"]], args=[0, 0], hits=9)
    out = gpu.alloc(4096)
    for arguments, words in (
        ({"at": [2]}, "no instruction"), ({"at": [1 << 20]}, "no instruction"),
        ({"at": [0], "wave": 4, "block": 256}, "wave 4 of a workgroup that has 4"),
        ({"at": [0], "group": (1,)}, "not in the grid"),
    ):  # fmt: skip
        with pytest.raises(LaunchError, match=words):
            trace(entry, args=[out, out], **arguments)


def matrix_kernel(target: str, name: str) -> list[str]:
    row, at = find(name, target), FirstRegisters()
    body = clear(target, at.d, row.registers("D")) + loads(at.a, row.registers("A")) + loads(at.b, row.registers("B"))
    return [*body, "s_waitcnt vmcnt(0)", "matrix_begin:", matrix_line(row, at), "matrix_end:",
            *stores(target, at.d, row.registers("D"))]  # fmt: skip


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_fragments_of_a_matrix_instruction(target: str, tmp_path, capsys: Capture) -> None:
    name = "v_mfma_f32_16x16x4f32"
    row = find(name, target)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((16, 4), (4, 16)))
    rows = [to_registers(row, op, x.view(np.uint32)[None]) for op, x in (("A", a), ("B", b))]
    code = built(target, matrix_kernel(target, name))
    gpu = simgpu.Device(target)
    module = gpu.load(code)
    end = module.code.symbols["matrix_end"].address - module.code.kernels[NAME].start
    (after,) = trace(module[NAME], [end], args=[gpu.upload(np.concatenate(rows)), gpu.alloc(1024)])
    d = after.registers(Reg("a" if target == "gfx908" else "v", 32, 4))
    assert (from_registers(row, "D", d)[0].view(np.float32) == a @ b).all()

    np.save(tmp_path / "in.npy", np.concatenate(rows))
    np.save(tmp_path / "d.npy", np.pad(a @ b, ((16, 0), (0, 16))))
    (tmp_path / "k.co").write_bytes(code)
    file = "a" if target == "gfx908" else "v"
    command = ["trace", str(tmp_path / "k.co"), "--arg", str(tmp_path / "in.npy"), "--arg", "zeros:u32:256",
               "--at", "matrix_end", "--against", str(tmp_path / "d.npy"), "--tile"]  # fmt: skip
    right = f"{file}[32:35] is D of {name} at rows 16, cols 0"
    assert main([*command, right, "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert made["tiles"][0]["tile"] == (a @ b).tolist() and made["tiles"][0]["wrong"] == []
    np.save(tmp_path / "d.npy", np.pad((a @ b).T, ((16, 0), (0, 16))))
    assert main([*command, right]) == 1
    assert "rows and columns are exchanged" in capsys.readouterr().out


GEMM = ["trace", "gemm", "-m", "40", "-n", "36", "-k", "16"]


def gemm(capsys: Capture, *more: str, status: int = 0) -> Any:
    assert main([*GEMM, *more, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_gemm_accumulators_are_the_product(capsys: Capture) -> None:
    """An emitted kernel after its k loop: AccVGPRs are tiles of A·B, edges cut."""
    assert main(["emit", "gemm", *GEMM[2:]]) == 0
    text = capsys.readouterr().out
    label = next(line[2:-1] for line in text.splitlines() if line.startswith(".L") and "multiplied_0:" in line)
    tile = "a[0:3] is D of v_mfma_f32_16x16x4f32 at rows 16, cols 16"
    (made,) = gemm(capsys, "--at", label, "--wave", "3", "--tile", tile, "--against", "C")
    assert made["tiles"][0]["wrong"] == [] and made["wave"] == 3
    assert main([*GEMM, "--at", label, "--wave", "2", "--tile", tile, "--against", "C"]) == 1
    assert "differ" in capsys.readouterr().out


def test_an_operator_s_inputs_are_those_named(capsys: Capture) -> None:
    """Multiplies one-hot rows, whose products are one-hot, unlike those of uniform deviates."""
    assert main(["emit", "gemm", *GEMM[2:]]) == 0
    label = next(line[2:-1] for line in capsys.readouterr().out.splitlines() if "multiplied_0:" in line)
    tile = "--tile", "a[0:3] is D of v_mfma_f32_16x16x4f32 at rows 0, cols 0", "--against", "C"
    (made,) = gemm(capsys, "--at", label, "--inputs", "one-hot", *tile)
    elements = [x for row in made["tiles"][0]["tile"] for x in row]
    assert made["tiles"][0]["wrong"] == [] and set(elements) == {0.0, 1.0}
    (made,) = gemm(capsys, "--at", label, *tile)
    assert 0.0 not in made["tiles"][0]["tile"][0]
    assert main([*GEMM, "--at", label, "--inputs", "odd"]) == 2 and "alternating" in capsys.readouterr().err


def test_every_operator_and_each_of_its_kernels(capsys: Capture) -> None:
    """A split softmax's second kernel sees the first one's results; options of the operator follow in any order."""
    softmax = ["trace", "--at", "0x0", "softmax", "--rows", "1", "--json", "-n", "300000", "--target", "mi300x", "--show", "s[0:1]"]
    assert main([*softmax, "--kernel", "none"]) == 2
    names = capsys.readouterr().err.split("has: ")[1].split(", ")
    assert len(names) == 2
    for name in (part.strip() for part in names):
        assert main([*softmax, "--kernel", name]) == 0
        (made,) = json.loads(capsys.readouterr().out)
        assert made["pc"] == 0 and len(made["registers"]["s[0:1]"]) == 2
    assert main(["trace", "attention", "-L", "40", "-d", "32", "--groups", "2", "--at", "0x0"]) == 2
    assert "--groups" in capsys.readouterr().err
    assert main(["trace", "gemm", "-m", "8", "-n", "8", "-k", "8"]) == 2
    assert "--at" in capsys.readouterr().err


def test_registers_as_text(capsys: Capture) -> None:
    assert main([*GEMM, "--at", "0x0", "--show", "v0,s[0:1]", "--view", "u32", "--lanes", "3-4", "--wave", "1"]) == 0
    out = capsys.readouterr().out
    assert "+0x0  s_load_dword" in out and "workgroup 0,0,0, wave 1, visit 0" in out
    assert [line.split() for line in out.splitlines() if line.startswith("   3 ")] == [["3", "67"]]


@pytest.mark.parametrize(
    "more, words",
    [
        (["--at", "nowhere"], "no such label"),
        (["--at", "99999"], "its lines are"),
        (["--at", "0x3"], "multiple of 4"),
        (["--at", "0x0", "--group", "9"], "not in the grid"),
        (["--at", "0x0", "--skip", "1"], "does not come to 0x0 more than 1 times"),
        (["--at", "0x0", "--show", "w3"], "is no register"),
        (["--at", "0x0", "--lanes", "64"], "within 0-63"),
        (["--at", "0x0", "--tile", "v0 is"], "declares no tile"),
        (["--at", "0x0", "--tile", "v[0:1] is D of v_mfma_f32_16x16x4f32"], "takes 4 vector registers"),
        (["--at", "0x0", "--tile", "a[0:3] is D of v_mfma_f32_16x16x4f32", "--against", "X"], "A, B, C"),
    ],
)
def test_errors(capsys: Capture, more: list[str], words: str) -> None:
    assert main([*GEMM, *more]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_split_sum_is_compared_by_parts(capsys: Capture) -> None:
    """A workgroup's accumulators hold its part of the product over k."""
    split = ["trace", "gemm", "-m", "16", "-n", "16", "-k", "544", "--at", "gemm_f32_nn_32x32x32_part_multiplied_0"]
    tile = ["--tile", "a[0:3] is D of v_mfma_f32_16x16x4f32"]
    assert main([*split, *tile, "--group", "1", "--against", "C.1"]) == 0
    assert main([*split, *tile, "--group", "1", "--against", "C.0"]) == 1
    capsys.readouterr()
    assert main([*split, *tile, "--against", "C"]) == 2
    assert "C.0, C.1" in capsys.readouterr().err
