"""Products of language models, and the model's time of one."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from simgpu.operators import TiledComputation
from simgpu.tools.benchmarks import llm_gemm
from simgpu.tools.benchmarks.llm_gemm import LayerProduct, cases, modelled_time


def test_the_list_has_sixty_shapes_once_each() -> None:
    every = list(cases())
    assert Counter(case.phase for case in every) == {"prefill": 24, "decode": 24, "mixture": 12}
    assert len({(case.m, case.n, case.k, case.batch) for case in every}) == 60


def test_a_case_is_timed_as_its_kernels_are() -> None:
    case = LayerProduct("decode", "small", 96, 160, 8192, batch=2)
    found = modelled_time(case, "bf16", "mi300x")
    tree = TiledComputation(96, 160, 8192, "mi300x", dtype="bf16", trans_b=True, batch=2)
    assert found.tile.startswith(f"{tree.plan.tile_m}x{tree.plan.tile_n}x{tree.plan.tile_k}")
    assert 1e-6 < found.seconds < 1e-3
    assert found.loop is not None and 0 < found.whole < found.loop < 1


def test_the_command_prints_a_line_a_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        llm_gemm, "cases", lambda: iter([LayerProduct("decode", "small", 16, 64, 128), LayerProduct("prefill", "big", 64, 64, 64)])
    )  # fmt: skip
    monkeypatch.setattr("sys.argv", ["llm_gemm", "--phase", "decode", "--target", "mi210", "--dtype", "f16"])
    llm_gemm.main()
    text = capsys.readouterr().out
    assert "small" in text and "16x64x128" in text and "big" not in text
    assert max(map(len, text.splitlines())) <= 80
    monkeypatch.setattr("sys.argv", ["llm_gemm", "--phase", "prefill", "--json"])
    llm_gemm.main()
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["model"] == "big" and row["seconds"] > 0
