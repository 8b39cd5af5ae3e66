"""`simgpu same`: right reorderings are equal, every wrong product is reported, and branches on floats make no verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from simgpu import Device, asm
from simgpu.hardware.isa.ring.arrays import elements, floats, words
from simgpu.operators import TiledComputation
from simgpu.tools.cases.operators import workload
from simgpu.tools.cases.same import DIFFERENT, EQUAL, NEARLY, Side, compare, explain, verdict_of
from simgpu.tools.cases.workload import Workload
from simgpu.tools.cli import main
from tests.support.kernels import KernelText, assemble

Capture = pytest.CaptureFixture[str]
SIZES = ("-m", "40", "-n", "36", "-k", "20")
ROW = ("--grid", "1", "--arg", "random:f32:64", "--arg", "zeros:f32:64")
SUM = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
{}
global_store_dword v1, v3, s[6:7]
"""


def said(capsys: Capture, *arguments: str, status: int) -> str:
    assert main(["same", *arguments]) == status
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def two_files(tmp_path: Path, first: str, second: str) -> list[str]:
    """Writes two kernels of one buffer to another, with these instructions from v2 to v3."""
    paths = []
    for name, lines in (("a.co", first), ("b.co", second)):
        path = tmp_path / name
        path.write_bytes(assemble("gfx942", KernelText("k", SUM.format(lines), ("buffer", "buffer"))))
        paths.append(str(path))
    return paths


@pytest.mark.slow
def test_tiles_of_other_targets_are_equal(capsys: Capture) -> None:
    launches = ["gemm", *SIZES, "--target", "mi100", "and", "gemm", *SIZES, "--target", "mi300x"]
    assert "all 1,440 elements are equal\nEQUAL" in said(capsys, *launches, status=0)
    assert "DIFFERENT" in said(capsys, *launches, "--alpha", "3", status=1)
    document = json.loads(said(capsys, "--json", *launches, "--alpha", "3", status=1))
    assert document["verdict"] == "different" and document["arrays"][0]["differing"] == 1440


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ("v_add_f32 v3, v2, v2", "v_mul_f32 v3, 2.0, v2", "EQUAL"),
        ("v_fma_f32 v3, v2, v2, -v2", "v_add_f32 v3, -1.0, v2\nv_mul_f32 v3, v2, v3", "EQUAL"),
        ("v_exp_f32 v3, v2\nv_mul_f32 v3, v3, v3", "v_add_f32 v3, v2, v2\nv_exp_f32 v3, v3", "EQUAL"),
        ("v_mul_f32 v3, v2, v2", "v_mul_f32 v3, v2, |v2|", "DIFFERENT"),
        ("v_mul_f32 v3, 4.0, v2", "v_mul_f32 v3, 2.0, v2", "DIFFERENT"),
        ("v_cvt_f16_f32 v3, v2\nv_cvt_f32_f16 v3, v3", "v_mov_b32 v3, v2", "EQUAL modulo 2^16"),
    ],
)
def test_two_files(capsys: Capture, tmp_path: Path, first: str, second: str, verdict: str) -> None:
    files = two_files(tmp_path, first, second)
    assert said(capsys, *files, *ROW, status=int(verdict == "DIFFERENT")).splitlines()[-1].startswith(verdict)


def test_branches_on_floats_make_no_verdict(capsys: Capture, tmp_path: Path) -> None:
    branch = "v_mov_b32 v3, v2\nv_readfirstlane_b32 s8, v2\nv_cmp_gt_f32 vcc, 0, v2\ns_cbranch_vccz {0}\nv_mov_b32 v3, 1.0\n{0}:"
    files = two_files(tmp_path, "v_mov_b32 v3, v2", branch.format("L0"))
    text = said(capsys, *files, *ROW, status=1)
    assert "UNKNOWN" in text and "s_cbranch_vccz" in text


@pytest.mark.parametrize("words", (["gemm", *SIZES], ["gemm", "and"], ["a.co", "b.co", "and", "c.co", "and"], ["a.co"]))
def test_a_wrong_command_line(capsys: Capture, words: list[str]) -> None:
    assert main(["same", *words]) == 2
    assert "`and` between them" in capsys.readouterr().err


def test_a_stored_sum_that_has_no_bits_is_no_difference() -> None:
    """-2^15 of f16 becomes 0 in memory; kernels that store partial sums elsewhere do not lose it."""

    def side(values: list[int]) -> Side:
        after = floats(np.array(values, np.int64).astype(np.uint32), np.dtype(np.float16))
        return Side("", {"c": np.zeros(3, np.float16)}, {"c": after}, [])

    kept, lost, wrong = side([5, 7, 9]), side([5, 7 + 0x8000, 9]), side([5, 8, 9])
    often = side([5 + 0x8000, 7 + 0x8000, 9])  # of three elements, that is no accident
    for other, verdict in ((kept, EQUAL), (lost, NEARLY), (wrong, DIFFERENT), (often, DIFFERENT)):
        assert verdict_of(compare(kept, other), [kept, other]) == verdict


def test_the_product_that_differs_is_named() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 9), (9, 8)))
    inputs = {"A": a, "B": b}
    x, y = elements(a)[2].astype(np.uint64), elements(b)[:, 5].astype(np.uint64)
    p = x * y % (1 << 32)
    whole = int(p.sum())
    cases = {
        "the second lacks A[2,k] * B[k,5] of k = 4": whole - int(p[4]),
        "the second has A[2,k] * B[k,5] of k = 4 twice": whole + int(p[4]),
        "the first has A[2,k] * B[k,5] of k = 6 to 8 once more than the second": whole - int(p[6:].sum()),
        "the second has B[k,5] of k = 3 instead of k = 4 in the product of k = 4": whole - int(p[4]) + int(x[4] * y[3]),
        "the second has A[2,k] of k = 1 instead of k = 4 in the product of k = 4": whole - int(p[4]) + int(x[1] * y[4]),
    }
    for reason, other in cases.items():
        assert explain((2, 5), whole % (1 << 32), other % (1 << 32), 1 << 32, inputs) == [reason]


# -- mutants of the matrix instructions of our own kernels ----------------------------------------


def mutants(source: str) -> Iterator[tuple[str, int, str]]:
    """Yields sources with a matrix instruction dropped, executed twice, or with another's A; each with the line it changed."""
    lines = source.splitlines()
    places = [n for n, line in enumerate(lines) if re.match(r"\s+v_mfma", line)]
    for n, other in zip(places, places[1:] + places[:1], strict=True):
        parts, there = (re.match(r"(\s+\S+ [^,]+, )([^,]+)(,.*)", lines[m]) for m in (n, other))
        assert parts and there
        changed = {"dropped": ["s_nop 0"], "doubled": [lines[n], "s_nop 15", lines[n]]}
        if parts[2] != there[2]:
            changed["swapped"] = [parts[1] + there[2] + parts[3]]
        for kind, instead in changed.items():
            yield kind, n, "\n".join([*lines[:n], *instead, *lines[n + 1 :], ""])


class Mutated:
    """A computation in the ring, with the source of its first kernel changed."""

    def __init__(self, tree: TiledComputation) -> None:
        self.emitted = asm.emit(tree)
        self.device = Device(tree.descriptor.arch, ring=True)
        self.work: Workload = workload(tree, tree.descriptor.arch, 0)
        self.buffers = [self.device.upload(array) for array in self.work.arrays]
        self.right = self.result(self.emitted.source)

    def result(self, source: str) -> np.ndarray:
        for buffer, array in zip(self.buffers, self.work.arrays, strict=True):
            buffer.write(array)
        prepared = asm.Prepared(self.emitted, self.device)
        for number, (kernel, call) in enumerate(prepared.calls(*self.buffers)):
            changed = self.device.load(asm.assemble(source, self.emitted.target))[kernel.name] if number == 0 else kernel
            changed.launch(**call)
        prepared.free()
        return words(self.buffers[self.work.result].download())

    def told(self, count: int) -> tuple[int, list[str]]:
        """Returns the number of drawn mutants that give another result, and those that give the same although they execute."""
        every = list(mutants(self.emitted.source))
        right, missed = 0, []
        for number in np.random.default_rng(0).permutation(len(every))[:count]:
            kind, line, source = every[number]
            if not np.array_equal(self.result(source), self.right):
                right += 1
            elif self._executes(line):
                missed.append(f"{kind} {self.emitted.source.splitlines()[line]}")
        return right, missed

    def _executes(self, line: int) -> bool:
        lines = self.emitted.source.splitlines()
        lines[line] = "s_trap 2"
        try:
            self.result("\n".join([*lines, ""]))
        except Exception:
            return True
        return False


@pytest.mark.slow
def test_wrong_products_are_told() -> None:
    found, missed = Mutated(TiledComputation(32, 32, 1024, target="mi300x", dtype="bf16")).told(4)
    assert found and not missed


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ("f32", "f16", "bf16", "fp8"))
def test_every_wrong_product_is_told(kind: str) -> None:
    found, missed = Mutated(TiledComputation(64, 64, 2048, target="mi300x", dtype=kind)).told(60)
    assert found > 15 and not missed


def test_results_of_exec_are_compared_bit_by_bit(capsys: Capture, tmp_path: Path) -> None:
    """With --ring, --expect knows no nearby elements, and no NaN."""
    files = two_files(tmp_path, "v_add_f32 v3, v2, v2", "v_mul_f32 v3, 3.0, v2")
    saved = str(tmp_path / "c.npy")
    assert main(["exec", files[0], *ROW, "--ring", "--save", f"1={saved}"]) == 0
    assert main(["exec", files[0], *ROW, "--ring", "--expect", f"1={saved}"]) == 0
    assert "64 elements agree within 0 of" in capsys.readouterr().out
    assert main(["exec", files[1], *ROW, "--ring", "--expect", f"1={saved}"]) == 1
    assert "64 of 64 elements differ" in capsys.readouterr().out
