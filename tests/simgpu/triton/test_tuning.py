"""Autotuning and benchmarks by modelled times; skipped without Triton."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")

import triton
from triton.runtime.errors import OutOfResources

import simgpu.triton
from simgpu.triton.tuning import limit_candidates
from tests.support import triton_kernels as kernels


def test_autotune_chooses_by_the_model_and_says_so() -> None:
    x, out = np.arange(3000, dtype=np.float32), np.zeros(3000, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime, match="no GPU was timed"):
        kernels.tuned_double[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, out, 3000)
    assert np.array_equal(out, 2 * x)
    times = {config.kwargs["BLOCK"]: time[0] for config, time in kernels.tuned_double.configs_timings.items()}
    assert 0 < times[kernels.tuned_double.best_config.kwargs["BLOCK"]] == min(times.values())


def test_autotuning_tries_as_many_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.arange(700, dtype=np.float32), np.zeros(700, np.float32)
    monkeypatch.setenv("SIMGPU_AUTOTUNE", "1")
    with simgpu.triton.device("mi300x"):  # a single candidate is not timed
        kernels.tuned_double[lambda meta: (triton.cdiv(700, meta["BLOCK"]),)](x, out, 700)
        assert np.array_equal(out, 2 * x) and kernels.tuned_double.best_config.kwargs["BLOCK"] == 16
        monkeypatch.setenv("SIMGPU_AUTOTUNE", "few")
        with pytest.raises(simgpu.LaunchError, match="SIMGPU_AUTOTUNE='few'"):
            kernels.tuned_double[lambda meta: (triton.cdiv(701, meta["BLOCK"]),)](x, out, 699)


def test_candidates_that_no_device_can_run_are_not_among_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:  # takes candidates as bytes of LDS; None: refused
        def run(self, **given: Any) -> Any:
            if given["lds"] is None:
                raise OutOfResources(1, 0, "threads")
            return SimpleNamespace(metadata=SimpleNamespace(shared=given["lds"]))

    def first(count: str, *sizes: int | None, pre_hook: Any = None) -> list[int | None]:
        monkeypatch.setenv("SIMGPU_AUTOTUNE", count)
        tuner = SimpleNamespace(nargs={}, fn=Compiler())
        configs = [triton.Config({"lds": size}, pre_hook=pre_hook) for size in sizes]
        return [config.kwargs["lds"] for config in limit_candidates(lambda _tuner, _kwargs: configs)(tuner, {})]

    with simgpu.triton.device("mi300x"):
        assert first("1", 98304, None, 65536, 1024) == [65536]
        assert first("2", 98304, 65537, 4096, 65536, 0) == [4096, 65536]
        assert first("1", 98304, None) == [98304]  # its launch reports that
        hooked: list[int] = []
        assert first("1", 98304, 1024, 512, pre_hook=lambda given: hooked.append(given["lds"])) == [1024]
        assert hooked == [98304, 1024], "as Triton calls it before each launch of a candidate"
    with simgpu.triton.device("mi355x"):
        assert first("1", 98304, 65536) == [98304]


@pytest.mark.slow
def test_candidates_run_as_far_as_their_time_needs_it() -> None:
    x, grid = np.arange(90_000, dtype=np.float32), lambda meta: (triton.cdiv(90_000, meta["BLOCK"]),)
    executed = {}
    for check in (False, True):
        kernels.tuned_double.__dict__.pop("chosen_by_target", None)
        out = np.zeros_like(x)
        with simgpu.triton.device("mi300x", check=check) as session, pytest.warns(simgpu.triton.ModelledTime):
            kernels.tuned_double[grid](x, out, 90_000)
            tuned = session.used["tuned_double"].instructions
            kernels.tuned_double[grid](x, out, 90_000)
            executed[check] = tuned / (session.used["tuned_double"].instructions - tuned)
        assert np.array_equal(out, 2 * x)
    assert executed[False] == 1 < executed[True], "in checked mode each candidate is checked"


@pytest.mark.parametrize("how", ["whole", "sample", "some"])
def test_a_benchmark_s_launches_may_end_with_their_samples(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    monkeypatch.setenv("SIMGPU_BENCH", how)
    with simgpu.triton.device("mi300x") as session:
        if how == "some":
            with pytest.raises(simgpu.LaunchError, match="SIMGPU_BENCH='some': give whole or sample"):
                triton.testing.do_bench(lambda: None)
            return
        with pytest.warns(simgpu.triton.ModelledTime):
            spent = triton.testing.do_bench(lambda: kernels.vector_add[(40,)](x, x, out, 5000, BLOCK=128))
        assert spent > 0 and session.launches == 1 and np.array_equal(out, 2 * x if how == "whole" else 0 * x)
        kernels.vector_add[(40,)](x, x, out, 5000, BLOCK=128)
    assert np.array_equal(out, 2 * x)


@pytest.mark.parametrize("how", ["whole", "sample"])
def test_in_a_sweep_of_shapes_nothing_runs_but_samples(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="Triton's tables are pandas'")
    pytest.importorskip("matplotlib", reason="and its figures matplotlib's")
    x, out, seen = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32), []
    monkeypatch.setenv("SIMGPU_BENCH", how)
    line = {"line_arg": "which", "line_vals": ["ours"], "line_names": ["Ours"], "plot_name": "times", "args": {}}

    def double(grid: int) -> None:
        kernels.vector_add[(grid,)](x, x, out, 5000, BLOCK=128)

    @triton.testing.perf_report(triton.testing.Benchmark(x_names=["grid"], x_vals=[20, 40], **line))
    def times(grid: int, which: str) -> float:
        double(grid)  # as a forward pass before the timed backward one
        seen.append(bool(out.any()))
        return float(triton.testing.do_bench(lambda: double(grid)))

    with simgpu.triton.device("mi300x") as session:
        with pytest.warns(simgpu.triton.ModelledTime):
            table = times.run(return_df=True)
        assert session.launches == 4 and seen == [how == "whole"] * 2 and (table.iloc[:, -1] > 0).all()
        double(40)
    assert np.array_equal(out, 2 * x)


def test_what_tuning_changed_is_put_back() -> None:
    x, out, count = np.arange(3000, dtype=np.float32), np.zeros(3000, np.float32), np.zeros(1, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        kernels.tuned_count[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, out, count=count, n=3000)
    assert np.array_equal(x, np.arange(1, 3001)) and np.array_equal(out, x) and count[0] == 3000


def test_each_target_is_tuned_for_itself() -> None:
    x, out = np.arange(500, dtype=np.float32), np.zeros(500, np.float32)
    for target in ("mi210", "mi355x"):
        with simgpu.triton.device(target), pytest.warns(simgpu.triton.ModelledTime):
            kernels.pruned_double[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, out, 500)
        assert np.array_equal(out, 2 * x)
        times = kernels.pruned_double.configs_timings
        assert [config.kwargs["BLOCK"] for config in times] == [64, 32]  # by the performance model
        assert all(time[0] > 0 for time in times.values()), "timed on the session in use"
        out[:] = 0


def test_triton_s_own_do_bench_is_refused_in_words() -> None:
    own = triton.testing.do_bench
    with simgpu.triton.device("mi300x"):
        assert triton.testing.do_bench is not own
        with pytest.raises(simgpu.LaunchError, match="was imported before simgpu"):
            own(lambda: None)


def test_do_bench_gives_the_time_of_what_was_launched() -> None:
    def add(n: int) -> Any:
        x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
        return lambda: kernels.vector_add[(triton.cdiv(n, 128),)](x, x, out, n, BLOCK=128)

    before = triton.testing.do_bench
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        small, large = (triton.testing.do_bench(add(n)) for n in (1 << 12, 1 << 16))
        quantiles = triton.testing.do_bench(add(1 << 12), quantiles=[0.2, 0.8])
    assert triton.testing.do_bench is before
    assert 0 < small < large
    assert quantiles == [small, small]


def test_a_benchmark_is_not_charged_for_what_it_tunes() -> None:
    x, out = np.arange(900, dtype=np.float32), np.zeros(900, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        run = lambda: kernels.tuned_double[lambda meta: (triton.cdiv(900, meta["BLOCK"]),)](x, out, 900)  # noqa: E731
        first, then = (triton.testing.do_bench(run) for _ in range(2))
        assert first == then > 0
        assert np.isnan(triton.testing.do_bench(lambda: x + 1)), "nothing was launched"
