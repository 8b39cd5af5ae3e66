"""Choices of tests from ROCm's clients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from simgpu.tools.validation.rocm import drawn, sample

SIZE = 160  # bytes of a record here; rocBLAS's own have 576


def record(function: str, category: str, number: int) -> bytes:
    return function.encode().ljust(128, b"\0") + category.encode().ljust(28, b"\0") + number.to_bytes(4, "little")


def test_a_sample_of_rocblas_s_data_has_each_function(tmp_path: Path) -> None:
    kinds = [("gemm", "quick"), ("gemm", "nightly"), ("axpy", "quick"), ("trsm", "quick"), ("dot", "stress")]
    head = b"rocBLAS\0" + bytes(SIZE) + b"ROCblas\0"
    data = head + b"".join(record(function, category, i) for i in range(50) for function, category in kinds)
    (tmp_path / "tests.data").write_bytes(data)
    found = b"".join(sample(tmp_path / "tests.data", 1))
    assert found.startswith(head)
    body = found[len(head) :]
    records = [body[at : at + SIZE] for at in range(0, len(body), SIZE)]
    assert len(set(records)) == len(records)
    assert all(b"quick" in each for each in records)
    assert Counter(each[:4] for each in records) == {b"gemm": 20, b"axpy": 2, b"trsm": 2}


def test_a_draw_takes_every_suite_before_a_second_test_of_one() -> None:
    listed = "Running main()\n" + "".join(f"quick/{s}.\n" + "  t1\n  t2\n  t3\n" for s in "abc") + "slow/d.\n  t\n"
    found = drawn(listed, "^quick", 5, 3)
    assert len(set(found)) == 5
    assert {name[6] for name in found} == set("abc")
    assert max(Counter(name[6] for name in found).values()) == 2
