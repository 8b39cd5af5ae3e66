"""`simgpu exec` and `simgpu disasm` on code objects of the test's own making."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder.metadata import Header, KernelArgument, Resources, epilogue, prologue
from simgpu.tools.cases.file_kernel import argument_maker, parse_extents
from simgpu.tools.cli import main
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.verbs.exec import parse_saves

# y[i] = x[i] * factor + (float)bias, i the global work-item id, blocks of 64.
SCALE = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  s_lshl_b32 s11, s2, 6
  v_add_u32 v1, s11, v0
  v_lshlrev_b32 v1, 2, v1
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  v_cvt_f32_i32 v3, s9
  s_waitcnt vmcnt(0)
  v_fma_f32 v2, v2, s8, v3
  global_store_dword v1, v2, s[6:7]
  s_endpgm"""
FOREVER = "again:\n  s_branch again\n  s_endpgm"


def code_object(body: str, target: str = "gfx908", name: str = "scale") -> bytes:
    arguments = (
        KernelArgument("x", 0, 8, "global_buffer"),
        KernelArgument("y", 8, 8, "global_buffer"),
        KernelArgument("factor", 16, 4, value_type="f32"),
        KernelArgument("bias", 20, 4, value_type="i32"),
    )
    header = Header(name, target, 64, arguments, user_sgprs=2, workgroup_ids=(True, False, False))
    lines = (*prologue(header), body, *epilogue(header, Resources(8, 0, 16, 0, 0)))
    return asm.assemble("\n".join(lines) + "\n", target)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("objects") / "scale.co"
    path.write_bytes(code_object(SCALE))
    return str(path)


def error(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> str:
    """The one line that a failing command prints."""
    assert main(arguments) == status
    out = capsys.readouterr()
    assert out.err.count("\n") == 1 and out.err.startswith("simgpu ") and "Traceback" not in out.err
    return out.err


def test_exec_from_npy_to_npy(scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = (np.arange(192, dtype=np.float32) / 16 - 6).reshape(3, 64)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npy"
    arguments = ["exec", scale, "--arg", str(tmp_path / "x.npy"), "--arg", "zeros:f32:3x64",
                 "--arg", "f32:2.5",
                 "--arg", "i32:-7", "--grid", "3", "--save", f"1={out}"]  # fmt: skip
    assert main([*arguments, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert np.array_equal(np.load(out), np.float32(2.5) * x - np.float32(7))
    assert made["block"] == [64, 1, 1] and made["counters"]["unique_write_bytes"] == 192 * 4
    assert [row["changed"] for row in made["buffers"]] == [0, 192]
    before = out.read_bytes()
    assert "--force" in error(capsys, *arguments, status=2)
    assert out.read_bytes() == before
    assert main([*arguments, "--force"]) == 0
    assert "scale of" in capsys.readouterr().out


def test_global_size_leaves_lanes_of_the_last_block_out(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", scale, "--arg", "ones:f32:128", "--arg", "zeros:f32:128",
                 "--arg", "f32:1", "--arg", "i32:1",
                 "--global-size", "100", "--json"]) == 0  # fmt: skip
    buffers = json.loads(capsys.readouterr().out)["buffers"]
    assert buffers[1]["changed"] == 100 and buffers[1]["max"] == 2.0


def test_the_kernels_own_errors_are_status_1(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ["--arg", "f32:1", "--arg", "i32:0", "--grid", "2"]
    short = error(capsys, "exec", scale, "--arg", "zeros:f32:64", "--arg", "zeros:f32:128", *values, status=1)
    assert "MemoryFault" in short and "global_load_dword" in short
    null = error(capsys, "exec", scale, "--arg", "zeros:f32:128", "--arg", "u64:0", *values, status=1)
    assert "MemoryFault" in null and "global_store_dword" in null
    endless = tmp_path / "forever.co"
    endless.write_bytes(code_object(FOREVER))
    buffers = ["--arg", "zeros:f32:128"] * 2
    spent = error(capsys, "exec", str(endless), *buffers, *values, "--max-instructions", "1000", status=1)
    assert "InstructionLimit" in spent and "1000" in spent


def test_what_can_be_put_right_is_status_2(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--grid", "1"]
    full = ["--arg", "zeros:f32:64", "--arg", "zeros:f32:64", "--arg", "f32:1", "--arg", "i32:0"]
    assert "4 arguments" in error(capsys, "exec", scale, *grid, status=2)
    assert "allows 64" in error(capsys, "exec", scale, *full, *grid, "--block", "128", status=2)
    assert "gfx942" in error(capsys, "exec", scale, *full, *grid, "--target", "mi300x", status=2)
    assert "scale" in error(capsys, "exec", scale, *full, *grid, "--kernel", "other", status=2)
    assert "no buffer" in error(
        capsys, "exec", scale, *full, *grid, "--save", f"2={tmp_path / 'z.npy'}", status=2
    )
    assert "--grid" in error(capsys, "exec", scale, *full, status=2)
    assert not list(tmp_path.iterdir())


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=3), st.sampled_from(",x"))
def test_extents_round_trip(extents: list[int], separator: str) -> None:
    assert parse_extents("--grid", separator.join(map(str, extents))) == tuple(extents)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,2,3,4", "1,,2", "a", "1.5", "4,0"])
def test_bad_extents(text: str) -> None:
    with pytest.raises(UsageError, match="--grid"):
        parse_extents("--grid", text)


@pytest.mark.parametrize("specs", [["x=1.npy"], ["1"], ["1=out.txt"], ["-1=a.npy"], ["1=a.npy", "1=b.npy"]])
def test_bad_saves(specs: list[str]) -> None:
    with pytest.raises(UsageError, match="--save"):
        parse_saves(specs)


@given(st.sampled_from(["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]), st.integers(-(2**65), 2**65))
def test_integers_are_exact_or_refused(kind: str, value: int) -> None:
    make = argument_maker(np.random.default_rng(0), "gfx908")
    bits, signed = int(kind[1:]), kind[0] == "i"
    if -(1 << bits - 1) * signed <= value < 1 << bits - signed:
        made = make(f"{kind}:{value}").value
        assert isinstance(made, np.generic) and made.dtype.itemsize * 8 == bits and int(made) == value
    else:
        with pytest.raises(UsageError, match="does not fit"):
            make(f"{kind}:{value}")


@pytest.mark.parametrize(
    ("spec", "raw"),
    [
        ("f32:1.5", "0000c03f"),
        ("f16:-2", "00c0"),
        ("bf16:1", "803f"),
        ("f64:0.5", "000000000000e03f"),
        ("bytes:0a0B", "0a0b"),
    ],
)
def test_bits_of_values(spec: str, raw: str) -> None:
    value = argument_maker(np.random.default_rng(0), "gfx908")(spec).value
    assert (value if isinstance(value, bytes) else np.asarray(value).tobytes()).hex() == raw


@pytest.mark.parametrize(
    "spec",
    ["", "f32", "f32:", "f32:x", "i32:1.5", "zeros:f32", "zeros:q:4", "bytes:0", "what:f32:4", "zeros:f32:0"],
)
def test_bad_arguments(spec: str) -> None:
    with pytest.raises(UsageError, match=r"give|is no|unknown"):
        argument_maker(np.random.default_rng(0), "gfx908")(spec)


def test_fills_have_type_shape_and_range() -> None:
    make = argument_maker(np.random.default_rng(0), "gfx908")
    for kind in ("f32", "f16", "bf16", "f64", "i8", "u32", "i64"):
        array = make(f"random:{kind}:50x3").array
        assert array is not None and array.shape == (50, 3)
        wide = array.astype(np.float64)
        assert np.abs(wide).max() <= (1 if kind[0] in "fb" else 100) and len(np.unique(wide)) > 20
    count = make("count:i32:4").array
    assert count is not None and count.tolist() == [0, 1, 2, 3]


def test_disasm_shows_text_descriptor_and_arguments(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", scale]) == 0
    text = capsys.readouterr().out
    for expected in (
        "scale: 12 instructions",
        "v_fma_f32 v2, v2, s8, v3",
        "user_sgprs",
        "global_buffer",
        "vgpr_count",
    ):
        assert expected in text
    assert main(["disasm", scale, "--kernel", "scale", "--json"]) == 0
    kernel = json.loads(capsys.readouterr().out)["kernels"][0]
    assert kernel["descriptor"]["user_sgprs"] == 2
    assert [row["text"].split()[0] for row in kernel["instructions"]][:2] == [
        "s_load_dwordx4",
        "s_load_dwordx2",
    ]
    assert sum(len(row["bytes"]) // 2 for row in kernel["instructions"]) == kernel["code_bytes"]


def test_disasm_shows_bytes_that_are_no_instruction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(code_object("  s_nop 1\n  .long 0xdeadbeef\n  s_endpgm"))
    assert main(["disasm", str(path)]) == 0
    text = capsys.readouterr().out
    assert ".long 0xdeadbeef" in text and "s_nop 1" in text and "s_endpgm" in text
