"""Variables of HIP sources at the prompt and in editors have the values that the source computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simgpu.debugger.locals import local_values
from simgpu.tools.cases.subject import subject
from simgpu.tools.debug.prompt import Prompt, carry_out
from tests.tools.debug.test_adapter import Client, client

__all__ = ["client"]

SOURCE = """__device__ float weigh(float v, int k) {
    float w = v * k;
    return w * w;
}
__global__ void k(float *y, const float *x, const double *z, int n) {
    int i = threadIdx.x;
    float acc = 0.0f;
    for (int j = 0; j < n; j++) {
        float a = x[i * n + j];
        acc += weigh(a, j);
    }
    double d = z[i] * 2;
    if (i < 40)
        y[i] = acc + (float)d;
}
"""
OPTIONS = ["--target", "mi300x", "--grid", "1", "--threads", "1", "--arg", "zeros:f32:64", "--arg", "x.npy",
           "--arg", "count:f64:64", "--arg", "i32:4"]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(256, dtype=np.float32))
    (tmp_path / "k.hip").write_text(SOURCE)
    return str(tmp_path / "k.hip")


def test_values_are_what_the_source_computes(file: str) -> None:
    """At every instruction, each variable in a register has a value that it has in the source at some time."""
    lane, x = np.arange(64), np.arange(256, dtype=np.float32).reshape(64, 4)
    partial = np.cumsum(np.concatenate([np.zeros((64, 1)), (x * np.arange(4)) ** 2], axis=1), axis=1)
    may_be = {"i": [lane], "acc": list(partial.T), "a": list(x.T), "d": [2.0 * lane], "n": [np.int32(4)],
              "w": list((x * np.arange(4)).T)}  # fmt: skip
    seen: dict[str, list[bool]] = {}
    with subject("debug", file, OPTIONS).debugger() as debugger:
        for _ in range(200):
            active = np.array([bool(debugger.snapshot().exec >> at & 1) for at in range(64)])
            for local in local_values(debugger):
                if local.name in may_be and local.values is not None:
                    held = np.broadcast_to(local.values, 64)[active]
                    fits = any(np.array_equal(held, np.broadcast_to(value, 64)[active]) for value in may_be[local.name])
                    seen.setdefault(local.name, []).append(fits)
            if not debugger.replay.waves_left:
                break
            debugger.step()
    assert {"i", "acc", "n", "a"} <= set(seen)
    wrong = {name: fits.count(False) for name, fits in seen.items() if not all(fits)}
    assert not wrong, (wrong, {name: len(fits) for name, fits in seen.items()})


def test_at_the_prompt(file: str) -> None:
    asked, lines = subject("debug", file, OPTIONS), []
    with asked.debugger() as debugger:
        carry_out(Prompt(debugger, asked, lines.append), ["b 14", "c", "info locals", "p i", "p i[5]", "p n", "p x", "p i[99]"])
    assert "n = 4" in lines and "i[5] = 5" in lines and any(line.startswith("x = 0x") for line in lines)
    assert any(line.startswith("i      [0]  0  1  2  3") or line.startswith("i      [0] ") for line in lines)
    assert any("(" in line and "63" in line for line in lines), "lanes 40 to 63 are off"
    assert lines[-1] == "i[99]: a lane is a number from 0 to 63"
    assert any(line.startswith("i = {0, 1, 2, 3, 4, 5, 6, 7, ...}") for line in lines)


def test_in_an_editor(file: str, client: Client) -> None:
    client.asked("initialize", adapterID="simgpu")
    client.asked("launch", program=file, args=OPTIONS)
    client.asked("setBreakpoints", source={"name": "k.hip", "path": file}, breakpoints=[{"line": 14}])
    client.asked("configurationDone")
    client.stopped()
    client.run("continue", threadId=1)
    scope = client.asked("scopes", frameId=1)["scopes"][0]
    found = client.asked("variables", variablesReference=scope["variablesReference"])["variables"]
    values = {each["name"]: each["value"] for each in found}
    assert scope["name"] == "Locals" and values["n"] == "4" and values["i"] == "{0, 1, 2, 3, 4, 5, 6, 7, ...}"
    assert client.asked("evaluate", expression="i", frameId=1, context="hover")["result"] == values["i"]
