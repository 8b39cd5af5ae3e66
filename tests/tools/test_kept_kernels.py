"""Emitted kernels that the cache keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simgpu import asm
from simgpu.operators import TiledComputation
from simgpu.tools.cases import kept_kernels
from simgpu.tools.cases.kept_kernels import emit_or_load, sources
from simgpu.tools.cases.operator_options import add_operator_options
from simgpu.tools.cases.operators import OPERATORS, Kernels
from simgpu.tools.shared.parser import Parser
from tests.tools.test_operators import RUNS

GEMM = OPERATORS["gemm"]


def refuses(_: object) -> asm.EmittedKernel:
    raise AssertionError("emitted again")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


@pytest.mark.parametrize("line", ["gemm -m 20 -n 30 -k 40 --policy published", *RUNS])
def test_a_kept_kernel_is_the_emitted_one(line: str, cache: Path) -> None:
    parser = Parser()
    add_operator_options(parser, kernels=True)
    options = parser.parse_args(line.split())
    operator, tree = options.operator, options.operator.tree(options)
    chosen = operator.choose_kernels(options)
    made = chosen.emit(tree)
    found = [emit_or_load(operator, chosen, operator.tree(options)) for _ in range(2)]
    assert found == [made, made] and found[1].origins == made.origins and not found[1].items
    assert len(list(cache.glob("[0-9a-f]*"))) == 1


def test_another_problem_target_policy_or_emitter_is_another_file(cache: Path) -> None:
    trees = [
        TiledComputation(16, 16, 16), TiledComputation(16, 16, 32), TiledComputation(16, 16, 16, target="mi300x"),
        TiledComputation(16, 16, 16, policy="published"), TiledComputation(16, 16, 16, beta=1.0),
    ]  # fmt: skip
    for _ in range(2):
        for tree in trees:
            assert emit_or_load(GEMM, GEMM.kernels, tree) == asm.emit(tree)
    assert len(list(cache.glob("[0-9a-f]*"))) == len(trees)
    with pytest.raises(AssertionError, match="emitted again"):
        emit_or_load(GEMM, Kernels(GEMM.kernels.workload, refuses), trees[0])


def test_changed_sources_are_emitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = TiledComputation(16, 16, 16)
    emit_or_load(GEMM, GEMM.kernels, tree)
    monkeypatch.setattr(asm, "emit", refuses)
    emit_or_load(GEMM, GEMM.kernels, tree)  # kept
    monkeypatch.setattr(kept_kernels, "_source_digest", lambda: b"other sources")
    with pytest.raises(AssertionError, match="emitted again"):
        emit_or_load(GEMM, GEMM.kernels, tree)


def test_a_users_operator_is_not_kept(cache: Path) -> None:
    tree, own = TiledComputation(16, 16, 16), replace(GEMM)
    assert emit_or_load(own, own.kernels, tree).items
    assert not list(cache.glob("[0-9a-f]*"))


def test_all_that_emits_is_in_the_key() -> None:
    read = {path.resolve() for path in sources()}
    root = Path(__file__).resolve().parents[2]
    for room in ("asm", "operators", "hardware", "tools/cases/operators"):
        assert read >= set((root / room).rglob("*.py")), room
