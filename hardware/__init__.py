"""Facts about the chip that operators, kernels and simulator share; nothing here imports them.

In the order of imports, which `tests/test_imports.py` checks:

    errors.py         errors that simgpu raises
    cache.py          files kept between runs in the user's cache
    lazy.py           names of a module, loaded when they are first used
    architectures.py  the architectures, and ranges of them
    dtypes.py         element types, and the numpy dtype that holds each
    memory_model.py   instructions that make accesses available or visible, by target and scope
    arrays.py         arrays and their bytes on a device
    matrix_table.py   matrix instructions: one row each
    descriptor.py     HardwareDescriptor and MFMAAtom: the figures of a GPU that tile derivation needs
    targets.py        GPUs: one row each
    rates/            measured speeds: bandwidths, latencies, the sustained clock
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
