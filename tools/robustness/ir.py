"""Runs random LLVM IR on the host and on simulated GPUs, and compares memory byte by byte.

    python -m simgpu.tools.robustness.ir --count 500 --seed 1 [--target gfx950 ...] [--level=-O0 ...] [--selector dag ...]
    python -m simgpu.tools.robustness.ir --seed 1 --first 42 --count 1     # one program again
    python -m simgpu.tools.robustness.ir --count 20000 --each 1            # many programs, each batch under the next setting

clang compiles the same programs (`ir_programs.py`) for x86 at -O0 and for each target, level and instruction selector. The phases
of a program run lane after lane on x86, and as a kernel of 256 lanes on the simulator. A program that differs is printed with its
first differing bytes, reduced for the first setting that differs. A difference is the simulator's if the machine code, read by
the ISA guide, gives the host's bytes, else LLVM's. Programs that clang rejects are counted and skipped. The exit status is 1 if a
program differed. Known faults of LLVM are in `ir_faults.py`; programs avoid them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from simgpu import Device
from simgpu.hardware.errors import SimError
from simgpu.tools.robustness.ir_programs import IrProgram, program
from simgpu.tools.robustness.ir_reduce import reduce_program
from simgpu.tools.robustness.ir_runs import MemoryImage, ProgramRejected, Setting, code_object, difference, gpu_result, host_results

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
LEVELS = ("-O0", "-O1", "-O2", "-O3")
SELECTORS = {"dag": False, "global": True}
BATCH = 25  # programs in a module: clang's start costs as much as a program
TRIALS = 300  # trials in a reduction
Made = TypeVar("Made")


def host_memory(programs: Sequence[IrProgram], seed: int) -> dict[int, MemoryImage]:
    """Returns memory after each program that x86's clang accepts, by its number."""
    results = _compile(programs, lambda some: host_results(some, seed))
    return {one.number: after for some, memories in results for one, after in zip(some, memories, strict=True)}


def differences(
    programs: Sequence[IrProgram], expected: dict[int, MemoryImage], setting: Setting, seed: int
) -> Iterator[tuple[IrProgram, str]]:
    """Yields the programs whose memory differs under a setting, and where. It skips programs that its clang rejects."""
    gpu = Device(setting.target, threads=1)
    programs = [one for one in programs if one.global_isel or not setting.global_isel]
    for some, code in _compile(programs, lambda some: code_object(some, setting)):
        module = gpu.load(code)
        for one in some:
            try:
                where = difference(expected[one.number], gpu_result(gpu, module, one, seed))
            except SimError as error:
                where = f"{type(error).__name__}: {error}"
            if where is not None:
                yield one, where


def _compile(
    programs: Sequence[IrProgram], compile_: Callable[[Sequence[IrProgram]], Made]
) -> Iterator[tuple[Sequence[IrProgram], Made]]:
    """Yields programs with the result of `compile_`, as many at once as it accepts."""
    if not programs:
        return
    try:
        result = compile_(programs)
    except ProgramRejected as error:
        if len(programs) == 1:
            print(f"p{programs[0].number} is rejected: {error}", file=sys.stderr, flush=True)
            return
        middle = len(programs) // 2
        yield from _compile(programs[:middle], compile_)
        yield from _compile(programs[middle:], compile_)
    else:
        yield programs, result


def smaller(one: IrProgram, setting: Setting, seed: int) -> IrProgram:
    """Reduces a program that still differs under the setting."""
    trials = itertools.count()

    def differs(candidate: IrProgram) -> bool:
        if next(trials) >= TRIALS:
            return False
        try:
            expected = {candidate.number: host_results([candidate], seed)[0]}
        except ProgramRejected:
            return False
        return any(differences([candidate], expected, setting, seed))

    return reduce_program(one, differs)


def run(numbers: Sequence[int], seed: int, settings: Sequence[Setting], each: int, reduce: bool) -> dict[int, list[Setting]]:
    """Runs each batch of programs under the next `each` settings.

    Returns the settings under which each program differs; prints each program once.
    """
    found: dict[int, list[Setting]] = {}
    turn = itertools.cycle(settings)
    for first in range(0, len(numbers), BATCH):
        programs = [program(seed, number) for number in numbers[first : first + BATCH]]
        expected = host_memory(programs, seed)
        programs = [one for one in programs if one.number in expected]
        for setting in itertools.islice(turn, each):
            for one, where in differences(programs, expected, setting, seed):
                print(f"p{one.number} differs, {setting}: {where}", flush=True)
                if one.number not in found and reduce:
                    print(smaller(one, setting, seed).text(gpu=True), flush=True)
                found.setdefault(one.number, []).append(setting)
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.ir", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--count", type=int, default=100, help="programs (100)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--first", type=int, default=0, help="number of the first program (0)")
    made.add_argument("--target", choices=TARGETS, action="append", help="only this target; may be repeated")
    made.add_argument("--level", choices=LEVELS, action="append", help="only this level, as --level=-O0; may be repeated")
    made.add_argument("--selector", choices=tuple(SELECTORS), action="append", help="SelectionDAG or GlobalISel only")
    made.add_argument("--each", type=int, help="settings that each batch of 25 programs runs under, in turn (all)")
    made.add_argument("--whole", action="store_true", help="do not reduce and print programs that differ")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    settings = [
        Setting(target, level, SELECTORS[selector])
        for target, level, selector in itertools.product(
            options.target or TARGETS, options.level or LEVELS, options.selector or SELECTORS
        )
    ]
    begun = time.monotonic()
    numbers = range(options.first, options.first + options.count)
    found = run(numbers, options.seed, settings, options.each or len(settings), not options.whole)
    for number, differing in found.items():
        print(f"p{number} differs in {len(differing)} settings: {', '.join(map(str, differing))}")
    print(f"{len(numbers)} programs, {len(settings)} settings, {time.monotonic() - begun:.0f} s: {len(found)} programs differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
