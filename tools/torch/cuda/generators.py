"""PyTorch's random number generators, one for each GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from simgpu.tools.torch.cuda import devices

_CPU = torch.device("cpu")


class GpuGenerator(torch.Generator):
    """Replaces `torch.Generator("cuda")`: draws by the CPU's method, and reports a GPU."""

    def __new__(cls, device: torch.device) -> GpuGenerator:
        return super().__new__(cls, _CPU)

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def device(self) -> torch.device:
        """GPU of the generator."""
        return self._device


class PhiloxGenerator(torch.Generator):
    """An element of `torch.cuda.default_generators`: a state of 16 bytes, seed and offset, for kernels that draw by Philox
    themselves.

    PyTorch's own operators draw from it by the CPU's method, from the same seed.
    """

    def __new__(cls, index: int) -> PhiloxGenerator:
        return super().__new__(cls, _CPU)

    def __init__(self, index: int) -> None:
        self._index = index
        self._offset = 0

    @property
    def device(self) -> torch.device:
        """GPU of the generator."""
        return torch.device("cuda", self._index)

    def manual_seed(self, seed: int) -> PhiloxGenerator:
        """Sets the seed and resets the offset."""
        super().manual_seed(seed)
        self._offset = 0
        return self

    def get_state(self) -> torch.Tensor:
        """Returns seed and offset, 8 bytes each, as a host tensor of bytes."""
        seed = self.initial_seed()
        words = torch.tensor([seed - (1 << 64) if seed >> 63 else seed, self._offset], dtype=torch.int64, device=_CPU)
        return words.view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> PhiloxGenerator:
        """Restores a state of `get_state`. Raises ValueError for another size."""
        if state.numel() * state.element_size() != 16:
            raise ValueError(f"a state has 16 bytes, seed and offset, not {state.numel() * state.element_size()}")
        seed, offset = state.view(torch.int64).tolist()
        if seed % (1 << 64) != self.initial_seed():
            super().manual_seed(seed)
        self._offset = offset
        return self


@functools.cache
def generator(index: int) -> PhiloxGenerator:
    """Returns the generator of the GPU of this number; it lives as long as the process."""
    return PhiloxGenerator(index)


class Generators(Sequence[PhiloxGenerator]):
    """Replaces `torch.cuda.default_generators`: one for each GPU in use."""

    def __len__(self) -> int:
        return devices.count()

    def __getitem__(self, index: Any) -> Any:
        numbers = range(len(self))[index]
        return generator(numbers) if isinstance(numbers, int) else tuple(map(generator, numbers))


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    generator(devices.current()).manual_seed(seed)


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    for each in Generators():
        each.manual_seed(seed)


# PyTorch's own operators draw from the host's generator for tensors of any GPU.
ANSWERS: dict[str, Any] = {
    "cuda.manual_seed": _seed,
    "cuda.manual_seed_all": _seed_all,
    "cuda.default_generators": Generators(),
    "cuda.get_rng_state": lambda _device=None: torch.get_rng_state(),
    "cuda.set_rng_state": lambda state, _device=None: torch.set_rng_state(state),
    "cuda.get_rng_state_all": lambda: [torch.get_rng_state() for _ in Generators()],
    "cuda.set_rng_state_all": lambda states: torch.set_rng_state(next(iter(states))),
}
