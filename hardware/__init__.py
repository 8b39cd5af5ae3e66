"""Facts about the chip that operators, kernels and simulator share; nothing here imports them.

In the order of imports, which `tests/test_imports.py` checks:

    errors.py         the errors that simgpu raises
    cache.py          files kept between runs in the user's cache
    architectures.py  the four architectures, and the ranges of them that facts hold for
    dtypes.py         element types, and the numpy dtype that holds each
    memory_model.py   the instructions that make accesses available or visible, by target and scope
    arrays.py         arrays and the bytes that a device holds of them
    matrix_table.py   the matrix instructions: one row each
    descriptor.py     HardwareDescriptor and MFMAAtom: the figures of a GPU that tile derivation needs
    targets.py        one row a GPU
    rates/            how fast a GPU is, as measured: bandwidths, latencies, the clock that it holds
    isa/              the instruction set: specs and bodies, decoder, text
    mfma/             matrix instructions: layouts and exact arithmetic
    code_object/      code objects: kernels, metadata, packed arguments
    timing_rules/     wait states, counters, LDS banks
    hip/              the real GPU, through HIP
"""

import warnings
from typing import Any

from simgpu.hardware import errors
from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.errors import SimError
from simgpu.hardware.targets import target, target_count, targets

__all__ = ["HardwareDescriptor", "MFMAAtom", "SimError", "errors", "target", "target_count", "targets"]


def __getattr__(name: str) -> Any:
    """Returns `target_count` by its old name, until the next release (PEP 562)."""
    if name == "counted":
        warnings.warn("simgpu.hardware.counted is now target_count", DeprecationWarning, stacklevel=2)
        return target_count
    raise AttributeError(f"module 'simgpu.hardware' has no attribute {name!r}")
