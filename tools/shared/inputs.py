"""Random operands by distribution, for `--inputs`.

A kernel that is right on uniform deviates may be wrong if one term outweighs all others, results cancel, or values leave a
narrow type's range. Each distribution aims at one such case.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.random import Generator

from simgpu.tools.shared.arrays import fill_random

Shape = Sequence[int]


def _normal(rng: Generator, shape: Shape) -> np.ndarray:
    return rng.standard_normal(shape)


def _sinks(rng: Generator, shape: Shape) -> np.ndarray:
    """Draws normal deviates; every 64th row, from a random one on, is 8 times as large: keys that attract all queries."""
    x = rng.standard_normal(shape)
    if x.ndim > 1:
        x[..., rng.integers(min(64, x.shape[-2])) :: 64, :] *= 8
    return x


def _one_hot(rng: Generator, shape: Shape) -> np.ndarray:
    x = np.zeros(shape)
    np.put_along_axis(x, rng.integers(0, shape[-1], (*shape[:-1], 1)), 1.0, axis=-1)
    return x


def _alternating(rng: Generator, shape: Shape) -> np.ndarray:
    """Draws magnitudes of normal deviates with alternating signs along a row, so that sums of neighbours cancel."""
    return np.abs(rng.standard_normal(shape)) * np.where(np.arange(shape[-1]) % 2, -1.0, 1.0)


@dataclass(frozen=True)
class Distribution:
    """A row of INPUTS."""

    summary: str  # for --help
    floats: Callable[[Generator, Shape], np.ndarray]  # float64, before they are rounded to the operand's type
    integers: tuple[int, int] = (-100, 100)  # least and greatest; cut to the type's range
    smallest: bool = False  # the floats are multiples of the type's smallest positive value


INPUTS = {
    "normal": Distribution("normal deviates", _normal),
    "sinks": Distribution("normal deviates, every 64th row 8 times as large", _sinks),
    "large": Distribution("normal deviates times 64", lambda rng, shape: 64 * _normal(rng, shape), (-(2**31), 2**31 - 1)),
    "tiny": Distribution("normal deviates times 2^-12", lambda rng, shape: 2.0**-12 * _normal(rng, shape), (-1, 1)),
    "subnormal": Distribution(
        "up to 3 times the smallest positive value", lambda rng, shape: rng.integers(-3, 4, shape).astype(float), (-3, 3), True
    ),
    "ties": Distribution("multiples of 1/2 from -1 to 1", lambda rng, shape: rng.integers(-2, 3, shape) / 2, (-2, 2)),
    "one-hot": Distribution("rows of 0 with a single 1", _one_hot),
    "alternating": Distribution("sizes of normal deviates, signs in turn", _alternating),
}
DISTRIBUTIONS = ("uniform", *INPUTS)


def add_inputs_option(parser: ArgumentParser) -> None:
    """Adds --inputs."""
    said = "; ".join(f"{name}: {row.summary}" for name, row in INPUTS.items())
    text = f"distribution of the operands (default: uniform in [-1, 1)). {said}"
    parser.add_argument("--inputs", choices=DISTRIBUTIONS, default="uniform", help=text)


@dataclass(frozen=True)
class Inputs:
    """A source of operands: a random generator and its distribution."""

    rng: Generator
    distribution: str = "uniform"
    compares: bool = True  # False: nobody compares results, so operands that others determine may be drawn, too

    def array(self, kind: np.dtype, shape: Shape) -> np.ndarray:
        """Draws an array of this type and shape, as `fill` does."""
        made = np.empty(shape, kind)
        self.fill(made)
        return made

    def fill(self, made: np.ndarray) -> None:
        """Draws the elements of a contiguous array. They are finite, even if the distribution leaves the type's range."""
        if self.distribution == "uniform":
            fill_random(self.rng, made)
        else:
            made[...] = self._elements(made.dtype, made.shape)

    def _elements(self, kind: np.dtype, shape: Shape) -> np.ndarray:
        chosen = INPUTS[self.distribution]
        if kind.kind in "iu":
            if self.distribution == "one-hot":
                return _one_hot(self.rng, shape)
            held = np.iinfo(kind)
            low, high = max(held.min, chosen.integers[0]), min(held.max, chosen.integers[1])
            return self.rng.integers(low, high, shape, endpoint=True)
        limits = ml_dtypes.finfo(kind)
        x = chosen.floats(self.rng, shape)
        if chosen.smallest:
            x = x * float(limits.smallest_subnormal)
        return np.clip(x, float(limits.min), float(limits.max)).astype(kind)
