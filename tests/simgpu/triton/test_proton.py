"""Proton's sessions on a simulated device; skipped without Triton or its part Proton."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")
proton = pytest.importorskip("triton.profiler", reason="this build of Triton has no Proton")

import simgpu.triton  # noqa: E402
from simgpu.hardware.errors import LaunchError  # noqa: E402
from tests.support import triton_kernels as kernels  # noqa: E402


@pytest.fixture(autouse=True)
def session() -> Iterator[Any]:
    with simgpu.triton.device("mi300x") as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", simgpu.triton.ModelledTime)
        yield session


def add(x: np.ndarray, out: np.ndarray) -> None:
    kernels.vector_add[(4,)](x, x, out, x.size, BLOCK=256)


def written(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    root, devices = json.loads(path.with_suffix(".hatchet").read_text())
    return root, devices


def test_a_proton_without_metrics_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton._C.libproton import proton as native

    monkeypatch.delattr(native, "set_metric_kernels", raising=False)  # as in Triton 3.6
    x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    with simgpu.triton.device("mi300x"):
        add(x, out)
    assert (out == 2).all() and not hasattr(native, "set_metric_kernels")


@pytest.mark.parametrize("hook", [None, "triton"])
def test_a_tree_of_scopes_has_the_modelled_time_of_each_launch(tmp_path: Path, hook: str | None) -> None:
    x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    number = proton.start(str(tmp_path / "profile"), hook=hook)
    with proton.scope("twice", {"bytes": 8000}):
        add(x, out)
        add(x, out)
    proton.deactivate(number)
    add(x, out)
    proton.activate(number)
    add(x, out)
    proton.finalize(number)
    assert (out == 2).all()
    root, devices = written(tmp_path / "profile")
    scopes = {child["frame"]["name"]: child for child in root["children"]}
    assert scopes["twice"]["metrics"] == {"bytes": 8000}
    (inner,) = scopes["twice"]["children"]
    outer = scopes["vector_add"]
    assert [node["metrics"]["count"] for node in (root, inner, outer)] == [0, 2, 1]
    assert inner["metrics"]["time (ns)"] == 2 * outer["metrics"]["time (ns)"] > 0
    assert (inner["metrics"]["device_id"], devices["HIP"]["0"]["arch"]) == ("0", "gfx942")


def test_repetitions_of_a_benchmark_are_modelled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_BENCH", "sample")
    timed: list[str] = []

    def half_a_millisecond(_session: Any, kernel: Any, *_rest: object) -> float:
        timed.append(kernel.name)
        return 0.5

    monkeypatch.setattr(simgpu.triton.Session, "_time", half_a_millisecond)
    x = np.ones(1000, np.float32)
    number = proton.start(str(tmp_path / "profile"))
    for _ in range(3):
        out = np.zeros(1000, np.float32)
        add(x, out)
    assert not out.any() and len(timed) == 1
    add(x[:999], out[:999])
    assert len(timed) == 2
    proton.finalize(number)
    add(x, out)  # whole, as nobody benchmarks any more
    assert (out == 2).all() and len(timed) == 2


def test_a_mode_that_asks_a_gpu_for_more_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="leave it out"):
        proton.start(str(tmp_path / "profile"), mode="periodic_flushing")
