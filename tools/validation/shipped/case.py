"""A launch of a shipped kernel with its arrays, and the error of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simgpu import Device, Kernel, Run
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
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)  # arguments that are tables of these buffers' addresses

    def run(self, gpu: Device) -> tuple[Run, Arrays]:
        """Launches the kernel; returns the run and the results."""
        return self.run_kernel(self.kernel(gpu))

    def kernel(self, gpu: Device) -> Kernel:
        """Loads the kernel."""
        kernels = gpu.load(self.launch.path)
        (name,) = kernels
        return kernels[name]

    def run_kernel(self, kernel: Kernel) -> tuple[Run, Arrays]:
        """Launches the loaded kernel; returns the run and the results."""
        gpu = kernel.module.device
        buffers = {key: gpu.upload(_pad(array)) for key, array in {**self.inputs, **self.results}.items()}
        addresses = {key: buffer.address for key, buffer in buffers.items()}
        for key, names in self.tables.items():
            addresses[key] = gpu.upload(np.array([addresses[name] for name in names], np.uint64)).address
        arguments = self.launch.arguments(kernel, addresses)
        run = kernel.launch(grid=self.launch.grid, block=self.launch.threads, args=arguments)
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
    with np.errstate(invalid="ignore"):  # NaN as bf16
        return float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())


def ordered_weight(rows: np.ndarray) -> np.ndarray:
    """Returns bytes (…, rows, width) in the order of `shuffle_weight` (aiter/ops/shuffle.py): 16 rows by two times 16 bytes.

    >>> ordered_weight(np.arange(512, dtype=np.uint16).reshape(16, 32))[0, 14:18]
    array([14, 15, 32, 33], dtype=uint16)
    """
    height, width = rows.shape[-2:]
    tiles = rows.reshape(-1, height // 16, 16, width // 32, 2, 16).transpose(0, 1, 3, 4, 2, 5)
    return np.ascontiguousarray(tiles).reshape(rows.shape)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Returns the softmax of each row.

    >>> softmax(np.zeros((1, 2)))
    array([[0.5, 0.5]])
    """
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def _pad(array: np.ndarray) -> np.ndarray:
    return np.concatenate([np.frombuffer(array.tobytes(), np.uint8), np.zeros(AHEAD, np.uint8)])
