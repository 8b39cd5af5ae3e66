"""The generators of random numbers that PyTorch has on a GPU."""

from __future__ import annotations

import torch

_CPU = torch.device("cpu")


class PhiloxGenerator(torch._C.Generator):
    """`torch.cuda.default_generators[0]`: a state of 16 bytes, seed and offset, for kernels that draw by Philox themselves.

    PyTorch's own operators, given it, draw by the CPU's method from the same seed.
    """

    def __new__(cls) -> PhiloxGenerator:
        return super().__new__(cls, _CPU)

    def __init__(self) -> None:
        self._offset = 0

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> PhiloxGenerator:
        """Begins anew."""
        super().manual_seed(seed)
        self._offset = 0
        return self

    def get_state(self) -> torch.Tensor:
        """Seed and offset, 8 bytes each, as a host tensor of bytes."""
        seed = self.initial_seed()
        words = torch.tensor([seed - (1 << 64) if seed >> 63 else seed, self._offset], dtype=torch.int64, device=_CPU)
        return words.view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> PhiloxGenerator:
        """Goes on from what `get_state` gave; ValueError for anything of another size."""
        if state.numel() * state.element_size() != 16:
            raise ValueError(f"a state has 16 bytes, seed and offset, not {state.numel() * state.element_size()}")
        seed, offset = state.view(torch.int64).tolist()
        if seed % (1 << 64) != self.initial_seed():
            super().manual_seed(seed)
        self._offset = offset
        return self
