"""Kernels that a call launched on a session, and the memory that they wrote."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import torch

from simgpu.tools.judge.child.operators import address_of, bytes_of
from simgpu.triton.arguments import ArgumentValue
from simgpu.triton.instructions import executed_instructions
from simgpu.triton.session import LoadedBinary, Session
from simgpu.triton.usage import Launched


@dataclass
class CallLaunches:
    """Launches of one call."""

    kernels: Counter[str] = field(default_factory=Counter)
    xf32: bool = False  # True if one executed matrix instructions of xf32

    @contextlib.contextmanager
    def count_launches(self, traced: set[int]) -> Iterator[None]:
        """Counts the launches of a block; storages that they write are added to `traced`."""
        launch = Session.launch

        def count(
            session: Session, binary: LoadedBinary, grid: tuple[int, int, int], warps: int, values: Sequence[ArgumentValue],
            cooperative: bool,
        ) -> None:  # fmt: skip
            storages = {address_of(one): bytes_of(one) for one in _tensors(values)}
            before = {address: raw.copy() for address, raw in storages.items()}
            self.kernels[binary.name] += 1
            try:
                launch(session, binary, grid, warps, values, cooperative)
            finally:
                changed = {address for address, raw in storages.items() if not np.array_equal(raw, before[address])}
                traced.update(changed)
                self.xf32 |= binary.last is not None and _executes_xf32(binary.last)

        with mock.patch.object(Session, "launch", count):
            yield


def _tensors(values: Sequence[ArgumentValue]) -> Iterator[torch.Tensor]:
    for one in values:
        tensor = getattr(one.value, "base", one.value)
        if isinstance(tensor, torch.Tensor) and address_of(tensor):
            yield tensor


def _executes_xf32(launched: Launched) -> bool:
    return any("xf32" in one.mnemonic for _, one, _ in executed_instructions(launched))
