"""Lane masks of comparisons: enough to see that no lane can be in two of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa import instruction as isa
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.values import UNKNOWN, Array, Cells, State, Test, Value, zero


@dataclass(frozen=True)
class Mask:
    """Lanes for which conditions hold together."""

    tests: tuple[Test, ...]

    def both(self, other: Mask) -> Mask | None:
        """Returns the lanes in both masks, None if there are none."""
        tests = (*self.tests, *other.tests)
        return None if any(_contradict(one, two) for one, two in itertools.permutations(tests, 2)) else Mask(tests)

    def key(self) -> tuple[object, ...]:
        return tuple((test.form.key(), test.equal, test.negated) for test in self.tests)

    @property
    def lanes(self) -> Array | None:
        """Work-items in it, as booleans; None if that depends on the launch."""
        values = [test.form.constant for test in self.tests]
        if any(value is None for value in values):
            return None
        made = np.asarray(True)
        for test, value in zip(self.tests, values, strict=True):
            made = made & ((np.asarray(value) == 0 if test.equal else np.asarray(value) >= 0) != test.negated)
        return made


@dataclass(frozen=True)
class Guarded:
    """An address in some work-items; in the others it is outside every buffer."""

    form: Form
    inside: Array

    def key(self) -> tuple[object, ...]:
        return self.form.key(), self.inside.tobytes()


@dataclass(frozen=True)
class Partial:
    """A number that is known in some work-items only."""

    form: Form
    known: Array

    def key(self) -> tuple[object, ...]:
        return self.form.key(), self.known.tobytes()


def leave_off(state: State, step: LintStep, active: Array) -> None:
    """Makes an instruction's results unknown in the work-items that are off."""
    for register in step.effect.access.writes:
        place = ("s", isa.VCC) if isinstance(register, str) else register
        value = state.registers.get(place)
        if isinstance(value, Cells):
            state.registers[place] = Cells(np.where(active[:, None], value.code, UNKNOWN))
        else:
            state.registers[place] = Partial(value, active) if isinstance(value, Form) else None


def known_in(value: Value, active: Array | None) -> Form | None:
    """Returns a number if it is known in these work-items. active: None for all."""
    if isinstance(value, Partial):
        return value.form if active is not None and np.all(value.known | ~active) else None
    return value if isinstance(value, Form) else None


def _contradict(zero: Test, least: Test) -> bool:
    """True if a sum that is 0 makes another one negative, which must be at least 0."""
    if not zero.equal or zero.negated or least.equal or least.negated:
        return False
    return any(_below(least.form - zero.form.times(sign)) for sign in (1, -1))


def _below(form: Form) -> bool:
    value = form.constant
    return value is not None and bool(np.all(np.asarray(value) < 0))


def combine(both: bool, a: Value, b: Value) -> Value:
    """Returns the intersection or union of two masks, 0 if it has no lanes."""
    if zero(a) or zero(b):
        return Form() if both else b if zero(a) else a
    if not both or not isinstance(a, Mask) or not isinstance(b, Mask):
        return None
    return a.both(b) or Form()
