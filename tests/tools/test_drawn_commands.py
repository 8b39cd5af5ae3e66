"""Random commands on operators are right, or refused in a line. The long run is `robustness.drawn_commands`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from simgpu.operators import reference
from simgpu.tools.robustness import drawn_commands
from simgpu.tools.robustness.drawn_commands import draw_command, run_command

SEED, COUNT = 7, 40


def test_drawn_commands_are_right_or_refused() -> None:
    rng, statuses = random.Random(SEED), []
    for _ in range(COUNT):
        arguments = draw_command(rng)
        status, text = run_command(arguments)
        statuses.append(status)
        assert status in (0, 2), f"simgpu {' '.join(arguments)}\n{text}"
        assert status == 0 or text.splitlines()[-1].startswith("simgpu "), text
    assert statuses.count(0) > COUNT / 4


def test_a_wrong_reference_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With another definition of a product, the tool prints a command and ends with 1."""
    right = reference.gemm
    monkeypatch.setattr(reference, "gemm", lambda *given, **more: np.asarray(right(*given, **more)) + 1.0)
    monkeypatch.setattr(drawn_commands, "draw_command", lambda rng: ["run", "gemm", "-m", "5", "-n", "6", "-k", "7"])
    assert drawn_commands.main(["--seconds", "0.01"]) == 1
    assert capsys.readouterr().out.startswith("simgpu run gemm -m 5 -n 6 -k 7\n")
