"""Choices of tests from ROCm's clients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from simgpu.tools.validation.rocm import GGML_RESULT, RESULT, ggml_cases, pick, sample

SIZE = 160  # bytes of a record here; rocBLAS's own have 576


def record(function: str, category: str, number: int, before: int) -> bytes:
    return bytes(before) + function.encode().ljust(128, b"\0") + category.encode().ljust(28, b"\0") + number.to_bytes(4, "little")


@pytest.mark.parametrize(("words", "before"), [((b"rocBLAS\0", b"ROCblas\0"), 0), ((b"hipSPARSELt\0", b"HIPsparselT\0"), 565)])
def test_a_sample_of_test_data_has_each_function(tmp_path: Path, words: tuple[bytes, bytes], before: int) -> None:
    kinds = [("gemm", "quick"), ("gemm", "nightly"), ("axpy", "quick"), ("trsm", "quick"), ("dot", "stress")]
    size = before + SIZE
    head = words[0] + bytes(size) + words[1]
    data = head + b"".join(record(function, category, i, before) for i in range(50) for function, category in kinds)
    (tmp_path / "tests.data").write_bytes(data)
    found = b"".join(sample(tmp_path / "tests.data", 1))
    assert found.startswith(head)
    body = found[len(head) :]
    records = [body[at : at + size] for at in range(0, len(body), size)]
    assert len(set(records)) == len(records)
    assert all(b"quick" in each for each in records)
    assert Counter(each[before : before + 4] for each in records) == {b"gemm": 20, b"axpy": 2, b"trsm": 2}


def test_a_draw_takes_every_suite_before_a_second_test_of_one() -> None:
    listed = "Running main()\n" + "".join(f"quick/{s}.\n" + "  t1\n  t2\n  t3\n" for s in "abc") + "slow/d.\n  t\n"
    found = pick(listed, "^quick", 5, 3)
    assert len(set(found)) == 5
    assert {name[6] for name in found} == set("abc")
    assert max(Counter(name[6] for name in found).values()) == 2


def test_ggml_tests_are_drawn_by_operator_from_those_that_the_gpu_takes() -> None:
    rows = [f'"ROCm0","{op}","type=f16,ne=[{i},2]","support","{i % 2}","","ROCm"' for op in ("ADD", "ROPE") for i in range(8)]
    listed = "\n".join(["loaded ROCm", '"backend_name","op_name","op_params","test_mode","supported","error_message","reg"', *rows])
    found = ggml_cases(listed, 3, 5)
    assert found == ggml_cases(listed, 3, 5)
    assert Counter(case.partition("(")[0] for case in found) == {"ADD": 3, "ROPE": 3}
    assert all(int(case.partition("[")[2].partition(",")[0]) % 2 for case in found)


def test_results_of_ggml_are_read_through_its_colours() -> None:
    text = "  ADD(type=f32,ne=[1]): \x1b[1;32mOK\x1b[0m\n  MUL_MAT(m=1): \x1b[1;31mFAIL\x1b[0m\n  2/2 tests passed\n"
    assert GGML_RESULT.findall(text) == [("ADD(type=f32,ne=[1])", "OK"), ("MUL_MAT(m=1)", "FAIL")]


def test_results_of_google_test_are_read_beside_what_the_program_printed() -> None:
    text = "w64, f16, 64[       OK ] A.Run/63 (10 ms)\n[  FAILED  ] A.Run/64, where GetParam() = 3 (8 ms)\n[  FAILED  ] A.Run/64\n"
    assert RESULT.findall(text) == [("OK", "A.Run/63"), ("FAILED", "A.Run/64")]
