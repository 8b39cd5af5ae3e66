"""Tries versions of PyTorch and Triton on a simulated GPU: `python -m simgpu.tools.torch.versions 2.14.1:3.8.0 2.13.0:3.9.0`.

Pip installs each pair into a folder of its own, removed afterwards. Parts of `version_probe` run there, each in a process. A table
tells which passed; the last lines of the others follow. A release of PyTorch for CUDA needs some 6 GB for a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simgpu import hardware
from simgpu.hardware.errors import SimError
from simgpu.tools.shared.console import show, table
from simgpu.tools.torch.environment import CHECK, COMPILE, INDUCTOR, OPERATORS, SIMULATED, TARGET

# Parts of `version_probe`, and the settings that they need.
PARTS: Mapping[str, Mapping[str, str]] = {
    "launch": {}, "finding": {CHECK: "collect"}, "training": {}, "operators": {OPERATORS: SIMULATED},
    "compile": {COMPILE: INDUCTOR},
}  # fmt: skip
PASSED = "passed"
LIMIT = 900.0  # seconds of one part


class Pair(NamedTuple):
    """Releases of PyTorch and of Triton."""

    torch: str
    triton: str

    @classmethod
    def parse(cls, text: str) -> Pair:
        """Reads `2.14.1:3.8.0`. Raises ValueError for another form."""
        torch, colon, triton = text.partition(":")
        if not (torch and colon and triton):
            raise ValueError(f"{text!r}: give PyTorch's release and Triton's, as 2.14.1:3.8.0")
        return cls(torch, triton)


@dataclass(frozen=True)
class PairOutcome:
    """Results of a pair: for each part "passed" or the last line of its error, or why the pair is not there."""

    pair: Pair
    parts: Mapping[str, str]
    absent: str = ""


def try_pair(pair: Pair, target: str, folder: Path) -> PairOutcome:
    """Installs a pair into a folder, and runs all parts with it."""
    # PyTorch names one release of Triton, and others work, too.
    for release in ([f"torch=={pair.torch}"], ["--upgrade", "--no-deps", f"triton=={pair.triton}"]):
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *release]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return PairOutcome(pair, {}, _last_error(done.stderr))
    return PairOutcome(pair, {part: _run_part(part, target, folder) for part in PARTS})


def _run_part(part: str, target: str, folder: Path) -> str:
    """Returns "passed", or why a part did not."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, TARGET: target, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **PARTS[part]}
    command = [sys.executable, "-m", "simgpu.tools.torch.version_probe", part]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT:.0f} s"
    return PASSED if not done.returncode and PASSED in done.stdout.split() else _last_error(done.stderr or done.stdout)


def _last_error(text: str) -> str:
    """Returns the last line that tells an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    return next((line for line in reversed(lines) if "rror" in line.partition(":")[0]), lines[-1])


def rows(outcomes: Sequence[PairOutcome]) -> list[list[str]]:
    """Returns the table's rows: releases, then a word for each part."""
    words = {PASSED: PASSED, "": "absent"}
    return [[*outcome.pair, *(words.get(outcome.parts.get(part, ""), "failed") for part in PARTS)] for outcome in outcomes]


def reasons(outcomes: Sequence[PairOutcome]) -> list[str]:
    """Returns a line for each pair that is not there, and for each part that failed."""
    found = []
    for outcome in outcomes:
        name = f"PyTorch {outcome.pair.torch}, Triton {outcome.pair.triton}"
        found += [f"{name}: {outcome.absent}"] if outcome.absent else []
        found += [f"{name}, {part}: {why}" for part, why in outcome.parts.items() if why != PASSED]
    return found


def main() -> int:
    """Prints the table; status 1 if a part of an installed pair failed, 2 for a pair or target that cannot be read."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="TORCH:TRITON", help="releases of PyTorch and Triton, as 2.14.1:3.8.0")
    parser.add_argument("--target", default="mi300x", help="board (default: mi300x)")
    parser.add_argument("--folder", type=Path, help="where pairs are installed for a while (default: the system's)")
    options = parser.parse_args()
    try:
        hardware.target(options.target)
        pairs = [Pair.parse(text) for text in options.pairs]
        outcomes = []
        for pair in pairs:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                outcomes.append(try_pair(pair, options.target, Path(folder)))
    except (SimError, ValueError, OSError) as error:
        print(f"simgpu: {error}", file=sys.stderr)
        return 2
    show(table(f"Versions on {options.target}", ("PyTorch", "Triton", *PARTS), rows(outcomes), left=2))
    print(*reasons(outcomes), sep="\n")
    return int(any(why != PASSED for outcome in outcomes for why in outcome.parts.values()))


if __name__ == "__main__":
    sys.exit(main())
