"""PyTorch's random number generators, one for each GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakValueDictionary

import torch

from simgpu.tools.torch.cuda import devices
from simgpu.tools.torch.environment import simulates

_CPU = torch.device("cpu")


class Engine(torch.Generator):
    """State that generators of a GPU share or exchange: draws by the CPU's method; offset: that of kernels that draw by
    Philox."""

    offset = 0

    def __init__(self, _device: torch.device) -> None:
        _ENGINES[self._cdata] = self

    @staticmethod
    def of(generator: torch.Generator) -> Engine | None:
        """Returns the engine that PyTorch's dispatcher passes as another object; None for a generator of the host."""
        return _ENGINES.get(generator._cdata)


_ENGINES: WeakValueDictionary[int, Engine] = WeakValueDictionary()  # by the address of PyTorch's object


class GpuGenerator(torch.Generator):
    """Replaces `torch.Generator("cuda")`: draws by the CPU's method, and reports a GPU.

    Operators draw from `engine`, which other generators may share, as PyTorch's share a state.
    """

    def __new__(cls, device: torch.device, engine: Engine | None = None) -> Self:
        return super().__new__(cls, _CPU)

    def __init__(self, device: torch.device, engine: Engine | None = None) -> None:
        self._device = device
        self.engine = Engine(_CPU) if engine is None else engine

    @property
    def device(self) -> torch.device:
        """GPU of the generator."""
        return self._device

    def manual_seed(self, seed: int) -> Self:
        """Sets the seed and resets the offset."""
        self.engine.manual_seed(seed)
        self.engine.offset = 0
        return self

    def seed(self) -> int:
        """Sets a seed that the system draws and returns it."""
        self.engine.offset = 0
        return self.engine.seed()

    def initial_seed(self) -> int:
        """Returns the seed."""
        return self.engine.initial_seed()

    def get_state(self) -> torch.Tensor:
        """Returns a copy of the state, as a host tensor of bytes."""
        return self.engine.get_state()

    def set_state(self, state: torch.Tensor) -> Self:
        """Restores a state of `get_state`."""
        self.engine.set_state(state)
        return self

    def get_offset(self) -> int:
        """Returns the offset that was set since the seed; 0 by default."""
        return self.engine.offset

    def set_offset(self, offset: int) -> Self:
        """Sets the offset. Raises RuntimeError unless it is a multiple of 4."""
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self.engine.offset = offset
        return self

    def graphsafe_get_state(self) -> Self:
        """Returns another generator with the same state: draws from one advance both."""
        return type(self)(self._device, self.engine)

    def graphsafe_set_state(self, state: GpuGenerator) -> Self:
        """Makes this generator draw from another's state."""
        self.engine = state.engine
        return self

    def clone_state(self) -> Self:
        """Returns another generator with a copy of the state."""
        copy = Engine(_CPU)
        copy.set_state(self.engine.get_state())
        copy.offset = self.engine.offset
        return type(self)(self._device, copy)


class PhiloxGenerator(GpuGenerator):
    """An element of `torch.cuda.default_generators`: a state of 16 bytes, seed and offset, for kernels that draw by Philox.

    PyTorch's operators on the host draw from it by the CPU's method, from the same seed.
    """

    def get_state(self) -> torch.Tensor:
        """Returns seed and offset, 8 bytes each, as a host tensor of bytes."""
        seed = self.initial_seed()
        words = [seed - (1 << 64) if seed >> 63 else seed, self.engine.offset]
        return torch.tensor(words, dtype=torch.int64, device=_CPU).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> Self:
        """Restores a state of `get_state`. Raises ValueError for another size."""
        if state.numel() * state.element_size() != 16:
            raise ValueError(f"a state has 16 bytes, seed and offset, not {state.numel() * state.element_size()}")
        seed, offset = state.view(torch.int64).tolist()
        if seed % (1 << 64) != self.initial_seed():
            self.engine.manual_seed(seed)
        self.engine.offset = offset
        return self


@functools.cache
def generator(index: int) -> PhiloxGenerator:
    """Returns the generator of the GPU of this number; it lives as long as the process."""
    return PhiloxGenerator(torch.device("cuda", index))


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


def _state(device: Any = None) -> torch.Tensor:
    return generator(devices.index_of(device)).get_state() if simulates() else torch.get_rng_state()


def _set_state(state: torch.Tensor, device: Any = None) -> None:
    if simulates():
        generator(devices.index_of(device)).set_state(state)
    else:
        torch.set_rng_state(state)


def _set_states(states: Sequence[torch.Tensor]) -> None:
    for number, state in enumerate(states):
        _set_state(state, number)


# Operators on the host draw from its generator, for tensors of any GPU.
ANSWERS: dict[str, Any] = {
    "cuda.manual_seed": _seed,
    "cuda.manual_seed_all": _seed_all,
    "cuda.default_generators": Generators(),
    "cuda.get_rng_state": _state,
    "cuda.set_rng_state": _set_state,
    "cuda.get_rng_state_all": lambda: [_state(number) for number in range(len(Generators()))],
    "cuda.set_rng_state_all": _set_states,
}
