"""A launch of a shipped kernel with its arrays, and the error of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from simgpu import Device, Run
from simgpu.tools.validation.aiter import ShippedLaunch

AHEAD = 4096  # bytes after each buffer: some kernels load ahead of what they use
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ShippedCase:
    """A launch and its arrays by the names of its arguments."""

    launch: ShippedLaunch
    inputs: Arrays
    results: Arrays  # before the launch
    error: Callable[[Arrays], float]  # largest error of results against float64, relative to the largest result; NaN if one is NaN
    bound: float  # most that the data types explain

    def run(self, gpu: Device) -> tuple[Run, Arrays]:
        """Launches the kernel; returns the run and the results."""
        kernels = gpu.load(self.launch.path)
        (name,) = kernels
        buffers = {key: gpu.upload(_padded(array)) for key, array in {**self.inputs, **self.results}.items()}
        addresses = {key: buffer.address for key, buffer in buffers.items()}
        arguments = self.launch.arguments(kernels[name], addresses)
        run = kernels[name].launch(grid=self.launch.grid, block=self.launch.threads, args=arguments)
        found = {}
        for key, before in self.results.items():
            raw = buffers[key].download(np.uint8)[: before.nbytes]
            found[key] = raw.view(before.dtype).reshape(before.shape)
        return run, found


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest wanted value.

    >>> relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    """
    return float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())


def softmax(scores: np.ndarray) -> np.ndarray:
    """Returns the softmax of each row.

    >>> softmax(np.zeros((1, 2)))
    array([[0.5, 0.5]])
    """
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def _padded(array: np.ndarray) -> np.ndarray:
    return np.concatenate([np.frombuffer(array.tobytes(), np.uint8), np.zeros(AHEAD, np.uint8)])
