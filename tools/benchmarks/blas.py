"""numpy's BLAS, which benchmarks compare with: its threads, which it reads from the environment when it is loaded, and its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


def threads_environment(threads: int) -> Mapping[str, str]:
    """The variables that give BLAS so many threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def limit_threads(threads: int) -> None:
    """For this process, if numpy is not loaded yet."""
    os.environ.update(threads_environment(threads))


def blas_name() -> str:
    """Name and version, as numpy was built."""
    import numpy as np

    config: Any = np.show_config(mode="dicts")
    found = config["Build Dependencies"]["blas"]
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()
