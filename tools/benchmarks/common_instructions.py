"""Prints the commonest instructions of kernels, for `simgpu/engine/lowering/common.tsv`.

    python -m simgpu.tools.benchmarks.common_instructions [--count 700] FOLDER... > simgpu/engine/lowering/common.tsv

Each folder counts equally, however many code objects (*.hsaco, *.co) are in it. Instructions that have one handler are one row.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from simgpu.engine.lowering.ahead import plain_handler
from simgpu.engine.lowering.turns import lets_others_on
from simgpu.engine.workers.initial_state import mode_register
from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa import decode, text
from simgpu.hardware.isa.code.flow import successors
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.mode import Mode

KERNELS = 40  # of a code object


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=700, help="rows (default: 700)")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="code objects")
    options = parser.parse_args()
    weights: defaultdict[str, float] = defaultdict(float)
    rows: dict[str, str] = {}  # each begins with the target: the newest that has a handler
    for folder in options.folders:
        kernels = [found for path in sorted((*folder.rglob("*.hsaco"), *folder.rglob("*.co"))) for found in _kernels(path)]
        for target, found in kernels:
            for key, row in found.items():
                rows[key] = max(rows.get(key, ""), f"{target}\t{row}")
                weights[key] += 1 / len(kernels)
    for key in sorted(weights, key=weights.__getitem__, reverse=True)[: options.count]:
        print(rows[key].split("\t", 1)[1])
    return 0


def _kernels(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields for each kernel of a file its target, and the rows of its handlers by their keys without the target."""
    data = path.read_bytes()
    for target in TARGETS:
        try:
            code = CodeObject.parse(data, target)
        except SimError:
            continue
        if code.target == target:
            for name in islice(code.kernels, KERNELS):
                yield target, _rows(code, code.kernels[name])
            return


def _rows(code: CodeObject, info: KernelInfo) -> dict[str, str]:
    found = {}
    word = mode_register(info.descriptor)
    segment = next(each for each in code.segments if each.executable and each.address <= info.start < each.end)
    content, seen, pending = bytes(segment.data), set[int](), [info.start - segment.address]
    while pending:
        at = pending.pop()
        if at in seen or not 0 <= at < len(content):
            continue
        seen.add(at)
        try:
            inst = decode(content, at, code.target)
            pending += successors(inst, at)
            turns = lets_others_on(inst, _after(content, at + inst.size, code.target))
            key = plain_handler(inst, Mode.of_register(word), turns).key.replace(f"{code.target}|", "", 1)
        except SimError:
            continue
        found[key] = "\t".join((f"{word:x}", content[at : at + inst.size].hex(), "turns" if turns else "-", text(inst)))
    return found


def _after(content: bytes, at: int, target: str) -> Iterator[Instruction]:
    while at < len(content):
        inst = decode(content, at, target)
        yield inst
        at += inst.size


if __name__ == "__main__":
    sys.exit(main())
