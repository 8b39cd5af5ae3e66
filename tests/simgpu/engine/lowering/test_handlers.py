"""Handlers that a process keeps: by instruction, mode and checks."""

from __future__ import annotations

import numpy as np

from simgpu.checks.numerics.check import Numerics
from simgpu.checks.numerics.wanted import NumericsOptions
from simgpu.debugger.native.touching import Touches, Touching
from simgpu.engine.check import guard
from simgpu.engine.lowering.handlers import falling_through_of
from simgpu.machine.mode import Mode
from tests.support.clang import assemble

TARGET = "gfx942"
MODE = Mode()


def code_of(line: str) -> bytes:
    (assembled,) = assemble([line], TARGET)
    assert assembled is not None
    return assembled.code


def touching(size: int) -> Touching:
    """Returns a check after a launch that read `size` bytes."""
    check = Touching([4 * size])
    check.touches = Touches({0x1000: np.zeros(size, np.uint8)}, {})
    return check


def test_what_a_launch_left_in_a_check_does_not_matter() -> None:
    code = code_of("s_load_dword s4, s[0:1], 0x0")
    first, second = guard(touching(1200)), guard(touching(700))
    assert first == second and hash(first) == hash(second)
    made, _ = falling_through_of(code, TARGET, MODE, (first,), False, False)
    assert falling_through_of(code, TARGET, MODE, (second,), False, False)[0] is made


def test_a_launch_leaves_no_counts_in_the_check_that_handlers_keep() -> None:
    check = touching(64)
    assert check.take() is not None and check.take() is None


def test_other_settings_and_classes_are_other_checks() -> None:
    code = code_of("v_add_f32 v1, v2, v3")
    checks = [(), *((guard(Numerics(wanted)),) for wanted in (NumericsOptions(), NumericsOptions(denormals=True)))]
    keys = {falling_through_of(code, TARGET, MODE, one, False, False)[0].key for one in checks}
    assert len(keys) == len(set(checks)) == 3
