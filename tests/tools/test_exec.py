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
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools.cases.file_kernel import argument_maker, parse_extents
from simgpu.tools.cli import main
from simgpu.tools.matrix.difference import explanation
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.verbs.exec import numbered_files

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


def assembly(body: str, target: str = "gfx908", name: str = "scale") -> str:
    arguments = (
        KernelArgument("x", 0, 8, "global_buffer"),
        KernelArgument("y", 8, 8, "global_buffer"),
        KernelArgument("factor", 16, 4, value_type="f32"),
        KernelArgument("bias", 20, 4, value_type="i32"),
    )
    header = Header(name, target, 64, arguments, workgroup_ids=(True, False, False))
    lines = (*prologue(header), body, *epilogue(header, Resources(8, 0, 16, 0, 0)))
    return "\n".join(lines) + "\n"


def code_object(body: str, target: str = "gfx908", name: str = "scale") -> bytes:
    return asm.assemble(assembly(body, target, name), target)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("objects") / "scale.co"
    path.write_bytes(code_object(SCALE))
    return str(path)


def error(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> str:
    """Returns the one line that a failing command prints."""
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
        numbered_files("--save", specs)


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


EXPECT = ["--arg", "f32:2", "--arg", "i32:0", "--grid", "4"]


def scaled(scale: str, folder: Path, want: np.ndarray, *options: str) -> list[str]:
    """Returns the command that compares y = 2 x, x = 0, 1, ... 255, with an array."""
    np.save(folder / "x.npy", np.arange(256, dtype=np.float32))
    np.save(folder / "want.npy", want)
    given = ["--arg", str(folder / "x.npy"), "--arg", "zeros:f32:256", *EXPECT]
    return ["exec", scale, *given, "--expect", f"1={folder / 'want.npy'}", *options]


def test_expected_arrays(scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = 2.0 * np.arange(256, dtype=np.float32)
    for shape in ((256,), (16, 16), (4, 8, 8)):
        assert main(scaled(scale, tmp_path, right.reshape(shape))) == 0
        assert "all 256 elements agree" in capsys.readouterr().out
    wrong = {
        "rows and columns are exchanged": right.reshape(16, 16).T,
        "stored column by column": right.reshape(4, 64, order="F"),
        "rows rotated by 1": np.roll(right.reshape(8, 32), 1, 0),
        "columns rotated by -3": np.roll(right.reshape(8, 32), -3, 1),
        "off by 1 rows: the one for 1 is at 0": np.concatenate([np.full((1, 32), 7), right.reshape(8, 32)[:-1]]),
        "0.5 times": 2 * right,
        "in another order": np.random.default_rng(0).permutation(right),
        "elements 100 to 103 of 256": np.where((np.arange(256) < 100) | (np.arange(256) > 103), right, -1),
    }
    for said, want in wrong.items():
        assert main(scaled(scale, tmp_path, want)) == 1
        out = capsys.readouterr().out
        assert said in out and "of 256 elements differ" in out, said
    assert main(scaled(scale, tmp_path, right + 1, "--tolerance", "0.01")) == 0
    assert main(scaled(scale, tmp_path, right + 1, "--tolerance", "0.001", "--json")) == 1
    capsys.readouterr()
    assert "--expect 1=" in error(capsys, *scaled(scale, tmp_path, right[:255]), status=2)
    assert "no buffer" in error(capsys, *scaled(scale, tmp_path, right, "--expect", f"2={tmp_path / 'want.npy'}"), status=2)
    assert "-1" in error(capsys, *scaled(scale, tmp_path, right, "--tolerance", "-1"), status=2)


def test_a_file_without_an_array_names_its_option(scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = scaled(scale, tmp_path, np.zeros(256))
    (tmp_path / "want.npy").write_bytes(b"no array")
    assert f"--expect 1={tmp_path / 'want.npy'}: no array of plain numbers" in error(capsys, *command, status=2)
    (tmp_path / "x.npy").write_bytes(b"no array")
    command = [word for word in command if "want.npy" not in word and word != "--expect"]
    assert f"--arg {tmp_path / 'x.npy'}: no array of plain numbers" in error(capsys, *command, status=2)
    show = [*"trace gemm -m 16 -n 16 -k 16 --at 0x0 --show v0".split(), "--against", str(tmp_path / "x.npy")]
    assert f"--against {tmp_path / 'x.npy'}: no array of plain numbers" in error(capsys, *show, status=2)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_an_explanation_is_true(rows: int, columns: int, seed: int) -> None:
    """Explanations are right: the named mistake turns one array into the other."""
    rng = np.random.default_rng(seed)
    want = rng.permutation(rows * columns).reshape(rows, columns) + 1.0
    step = int(rng.integers(1, rows))
    said = explanation(np.roll(want, step, 0), want, 0)
    assert any(f"With its rows rotated by {back} it agrees" in said for back in (-step, rows - step))
    assert "3.5 times" in explanation(3.5 * want, want, 1e-12)
    assert "Every element is 0" in explanation(0 * want, want, 0)
    other = want.copy()
    other[rows - 1] += 0.5
    assert f"rows {rows - 1} to {rows - 1} of {rows}" in explanation(other, want, 0)


def test_numbers_that_are_none_are_counted(scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.zeros(256, np.float32)
    x[3], x[5:7] = np.nan, np.inf
    np.save(tmp_path / "x.npy", x)
    command = ["exec", scale, "--arg", str(tmp_path / "x.npy"), "--arg", "zeros:f32:256", *EXPECT]
    assert main(command) == 0
    assert "nan   infinite" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    buffers = json.loads(capsys.readouterr().out)["buffers"]
    assert [(buffer["nan"], buffer["infinite"]) for buffer in buffers] == [(1, 2), (1, 2)]


def test_assembly_is_taken_where_a_code_object_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scale.s"
    path.write_text(assembly(SCALE))
    launch = ["--arg", "count:f32:64", "--arg", "zeros:f32:64", "--arg", "f32:2", "--arg", "i32:0", "--grid", "1"]
    assert main(["disasm", str(path)]) == 0 and main(["exec", str(path), *launch]) == 0
    assert main(["check", str(path), *launch]) == 0
    capsys.readouterr()
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if "s_lshl" in text)
    for place in ("scale+0x10", "0x10", str(line)):
        assert main(["trace", str(path), "--at", place, *launch]) == 0
        assert "before scale+0x10  s_lshl_b32" in capsys.readouterr().out
    output = tmp_path / "made.co"
    assert main(["asm", str(path), "-o", str(output)]) == 0
    assert "gfx908" in capsys.readouterr().out and list(CodeObject.parse(output.read_bytes()).kernels) == ["scale"]
    assert "exists" in error(capsys, "asm", str(path), "-o", str(output), status=2)
    path.write_text(assembly(SCALE.replace("v_fma_f32", "v_fmaa_f32")))
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if "v_fmaa" in text)
    for command in (["asm", str(path), "-o", str(tmp_path / "new.co")], ["exec", str(path), *launch]):
        said = error(capsys, *command, status=2)
        assert f"scale.s for gfx908, line {line}: invalid instruction" in said
    assert not (tmp_path / "new.co").exists()
    path.write_text("  s_endpgm\n")
    assert "names no target" in error(capsys, "disasm", str(path), status=2)
    path.write_bytes(b"\xff\xfe")
    assert "no UTF-8" in error(capsys, "disasm", str(path), status=2)
    path = tmp_path / "empty.co"
    path.write_bytes(b"")
    assert "empty.co: " in error(capsys, "disasm", str(path), status=2)


def test_a_finding_names_the_line_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "late.s"
    path.write_text(assembly(SCALE.replace("  s_waitcnt vmcnt(0)\n", "")))
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if "v_fma_f32" in text)
    launch = ["--arg", "count:f32:64", "--arg", "zeros:f32:64", "--arg", "f32:2", "--arg", "i32:0", "--grid", "1"]
    assert main(["check", str(path), *launch]) == 1
    out = capsys.readouterr().out
    assert "missing-wait" in out and f"late.s:{line}" in out


@pytest.mark.slow
def test_hip_kernels_are_taken_where_a_code_object_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.hip"
    path.write_text("""#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
""")
    np.save(tmp_path / "want.npy", 2 * np.arange(100, dtype=np.float32))
    launch = ["--target", "mi300x", "--arg", "count:f32:100", "--arg", "zeros:f32:100", "--arg", "u32:100", "--grid", "2"]
    assert main(["exec", str(path), *launch, "--expect", f"1={tmp_path / 'want.npy'}"]) == 0
    assert main(["check", str(path), *launch]) == 0
    capsys.readouterr()
    past = ["99" if word == "100" else word.replace(":100", ":90") if word.startswith("zeros") else word for word in launch]
    assert "twice.hip:4" in error(capsys, "exec", str(path), *past, status=1)
    assert "names no target" in error(capsys, "disasm", str(path), status=2)
    path.write_text(path.read_text().replace("2 * x[i]", "2 * z[i]"))
    assert "twice.hip:4:27: error: use of undeclared identifier 'z'" in error(capsys, "exec", str(path), *launch, status=2)
