"""numpy's BLAS, with which benchmarks compare: its name, and the threads and kernels that the environment gives it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")
# Variables that name a CPU, or its caches, to OpenBLAS (USAGE.md, "Runtime variables"), MKL and BLIS instead of the host's.
PIN_VARIABLES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR", "BLIS_ARCH_TYPE",
)  # fmt: skip
CORE_NAME = "scipy_openblas_get_corename64_"  # in numpy's wheels


def threads_environment(threads: int) -> Mapping[str, str]:
    """Returns the variables that give BLAS `threads` threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def limit_threads(threads: int) -> None:
    """Limits this process's threads, if numpy is not loaded yet."""
    os.environ.update(threads_environment(threads))


def blas_name() -> str:
    """Returns name and version, from numpy's build."""
    import numpy as np

    config: Any = np.show_config(mode="dicts")
    found = config["Build Dependencies"]["blas"]
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def blas_kernels() -> str:
    """Returns the CPU whose kernels OpenBLAS runs in this process, as it reports; "" if numpy is not a wheel with OpenBLAS."""
    import numpy as np

    for path in (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"):
        asked = getattr(ctypes.CDLL(str(path)), CORE_NAME, None)  # numpy has loaded it, so this is the same library
        if asked is not None:
            asked.restype = ctypes.c_char_p
            return str(asked().decode())
    return ""


def blas_pins() -> list[str]:
    """Returns the variables, with their values, that make BLAS use another CPU's kernels or blocks than the host's."""
    return [f"{name}={os.environ[name]}" for name in PIN_VARIABLES if os.environ.get(name)]
