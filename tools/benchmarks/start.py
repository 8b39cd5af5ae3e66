"""From `import simgpu` to the first result, a small GEMM emitted, assembled and simulated: the README's example, in a new process.

python -m simgpu.tools.benchmarks.start [--json]

Cold: simgpu's cache is an empty folder. Warm: an earlier process has filled it. Python's bytecode exists, as after pip install.
Starting Python itself is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from simgpu.tools.shared.console import print_figures
from simgpu.tools.shared.processes import output_of

COLD, WARM = 3, 5  # processes; medians count
EXAMPLE = """
import time
began = time.perf_counter()
import simgpu
from simgpu import asm, operators
import numpy as np
a, b = np.random.rand(100, 33).astype("f4"), np.random.rand(33, 77).astype("f4")
kernel = asm.emit(operators.TiledComputation(100, 77, 33, target="mi300x"))
gpu = simgpu.Device("mi300x", check={check})
buffers = gpu.upload(a), gpu.upload(b), gpu.alloc(4 * 100 * 77)
asm.launch(kernel, gpu, *buffers)
c = buffers[2].download("f4", (100, 77))
took = time.perf_counter() - began
assert np.allclose(c, a @ b, rtol=1e-4), "wrong result"
print(took)
"""


def main() -> int:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    taken = {"cold": cold(), "warm": warm(), "cold_checked": cold(1, check=True)}
    print_figures({f"{name}_seconds": found["seconds"] for name, found in taken.items()}, options.json)
    return 0


def cold(times: int = COLD, check: bool = False) -> dict[str, Any]:
    """Returns seconds of processes with empty caches, each its own. A process before leaves Python's bytecode; check: in
    checked mode."""
    taken = []
    for _ in range(1 + times):
        with tempfile.TemporaryDirectory() as folder:
            taken.append(_seconds(folder, check))
    del taken[0]
    return {"seconds": statistics.median(taken), "all": taken}


def warm(times: int = WARM) -> dict[str, Any]:
    """Returns seconds of processes after one that filled the caches."""
    with tempfile.TemporaryDirectory() as folder:
        _seconds(folder)
        taken = [_seconds(folder) for _ in range(times)]
    return {"seconds": statistics.median(taken), "all": taken}


def _seconds(folder: str, check: bool = False) -> float:
    return float(output_of(["-c", EXAMPLE.format(check=check)], {"SIMGPU_CACHE_DIR": str(Path(folder, "simgpu"))}))


if __name__ == "__main__":
    sys.exit(main())
