"""Proves small random LLVM IR equal at -O0 and at another level, or for two targets, or proves code equal to its IR.

    python -m simgpu.tools.robustness.ir_proofs --count 50 [--target gfx942] [--other-target gfx90a | --source] [--level=-O3]
    python -m simgpu.tools.robustness.ir_proofs --folder llvm/test/CodeGen/AMDGPU --count 500 --effort 1

A program loads from a lane's own bytes, computes, branches and loops, and stores to others of its own, so the generator's
operations are those of `ir_statements.py`. A program that differs is printed with the launch that shows it. Functions of a folder
are compared with their IR; reasons of unknown ones are counted at the end.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simgpu.hardware.code_object import CodeObject
from simgpu.proof.equal import Verdict, compare
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.refine import refines
from simgpu.proof.solver import DEFAULT, Limits
from simgpu.tools.robustness.ir_faults import PROLOGUE
from simgpu.tools.robustness.ir_files import draw_functions, judge_function
from simgpu.tools.robustness.ir_operands import I32, I64, Region
from simgpu.tools.robustness.ir_programs import IN_STRIDE, OUT_STRIDE, IrProgram
from simgpu.tools.robustness.ir_runs import ProgramRejected, Setting, code_object
from simgpu.tools.robustness.ir_statements import Phase
from simgpu.tools.robustness.ir_values import DrawnValue
from simgpu.tools.shared.errors import UsageError

STORED = 4  # values of a program that are stored
UNDECIDED = ("effort", "time")  # reasons that begin so


def small_program(seed: int, number: int) -> IrProgram:
    """Makes a program of a few statements, without LDS, private memory and atomics of its own.

    >>> small_program(1, 2).text(gpu=True).count("define amdgpu_kernel")
    1
    """
    rng = random.Random(f"ir-proof:{seed}:{number}")
    phase = Phase(rng, 0, False, number % 2 == 1)
    for line in PROLOGUE.splitlines()[1:]:
        phase.effect(f"{line.strip()}", keep=True)
    phase.effect("%shared = getelementptr i8, §G %atom, i64 0", keep=True)
    phase.effect("%atom_own = getelementptr i8, §G %atom, i64 64", keep=True)
    out = Region("%out_own", "G", OUT_STRIDE, 16, True)
    phase.regions = [Region("%in_own", "G", IN_STRIDE, 16, False), out]
    phase.pool = [DrawnValue("%lane", I32), DrawnValue("%scalar", I64), phase.load(), phase.load()]
    phase.statements(rng.choice((2, 3, 4, 6, 8)), 0)
    for given in phase.pool[-STORED:]:
        width = -(-given.type.bits // 8) * 8
        phase.store_value(phase.resize(phase.bits(given), width), out)
    lines = ("entry:", *phase.lines, "  ret void")
    return IrProgram(number, (lines, ("entry:", "  ret void")), ("alwaysinline", "alwaysinline"), number % 2 == 0)


def compile_program(program: IrProgram, target: str, level: str) -> CodeObject:
    """Compiles a program. Raises ProgramRejected."""
    return CodeObject.parse(code_object([program], Setting(target, level, False)))


def judge(program: IrProgram, settings: Sequence[Setting], limits: Limits = DEFAULT) -> Verdict:
    """Compares a program compiled in two ways. Raises ProgramRejected."""
    codes = [compile_program(program, each.target, each.level) for each in settings]
    return compare(codes[0], codes[1], f"p{program.number}", limits=limits)


def judge_source(program: IrProgram, setting: Setting, limits: Limits = DEFAULT) -> Verdict:
    """Compares a program's machine code with its IR. Raises ProgramRejected."""
    code = compile_program(program, setting.target, setting.level)
    return refines(code, f"p{program.number}", read_ir(program.text(gpu=True)), limits)


def outcome(verdict: Verdict) -> str:
    """Returns a verdict's kind; an unknown one is "out of reach" if something is not modelled, rather than not decided."""
    undecided = verdict.reason.startswith(UNDECIDED) or "no launch was found" in verdict.reason
    return "out of reach" if verdict.kind == "unknown" and not undecided else verdict.kind


@dataclass(frozen=True)
class ProofCase:
    """A program or a function to be judged. judge: raises ProgramRejected."""

    name: str
    judge: Callable[[Limits], Verdict]
    text: Callable[[], str]


def random_cases(options: argparse.Namespace) -> Iterator[ProofCase]:
    """Yields random programs, compared with another compilation or with their IR."""
    setting = Setting(options.target, options.level, False)
    other = Setting(options.other_target, options.level, False) if options.other_target else Setting(options.target, "-O0", False)
    for number in range(options.first, options.first + options.count):
        program = small_program(options.seed, number)
        made = partial(judge_source, program, setting) if options.source else partial(judge, program, (other, setting))
        yield ProofCase(f"p{number}", made, partial(program.text, gpu=True))


def function_cases(options: argparse.Namespace) -> Iterator[ProofCase]:
    """Yields functions of a folder, compared with their IR."""
    for file, name in draw_functions(options.folder, options.target, options.seed, options.first, options.count):
        yield ProofCase(f"{file.path.name} {name}", partial(judge_function, file, name), partial(file.only, name))


def reason_group(reason: str) -> str:
    """Returns a reason without names, numbers and types, so that like ones are counted together.

    >>> reason_group("llvm.amdgcn.raw.buffer.load.v2f16 (%v = call ...)"), reason_group("a parameter of type ptr addrspace(8)")
    ('llvm.amdgcn.raw.buffer.load', 'a parameter of type ptr addrspace(8)')
    """
    text = re.sub(r"[;,:]? \(?[%@].*|(\.(v\d+)?[pif]\d+)+\b.*|\.v\d+bf16.*|\.bf16.*", "", reason)
    return re.sub(r" by \w+_.*(?= may differ)|0x[0-9a-f]+|\b\d{4,}\b|symbol \w+", "...", text)[:100]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.ir_proofs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=50, help="programs (50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first program (0)")
    parser.add_argument("--target", default="gfx942", help="(gfx942; with --folder, of files whose RUN lines name no gfx9)")
    parser.add_argument("--other-target", help="compare with this target at the same level, instead of with -O0")
    parser.add_argument("--source", action="store_true", help="compare with the program's IR, instead of with -O0")
    parser.add_argument("--folder", type=Path, help="functions of its .ll files, one of each file, then another, no programs")
    parser.add_argument("--level", default="-O3", help="compared with -O0, as --level=-O1 (-O3)")
    parser.add_argument("--effort", type=float, default=10.0, help="for each program (10)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each program, too (no limit)")
    options = parser.parse_args(argv)
    limits = Limits(options.effort, seconds=options.seconds)
    tally: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    begun = time.monotonic()
    try:
        for case in function_cases(options) if options.folder else random_cases(options):
            kind, reason = _judge(case, limits)
            tally[kind] += 1
            if reason and kind in ("unknown", "out of reach"):
                reasons[f"{kind}: {reason_group(reason)}"] += 1
    except UsageError as error:
        parser.error(str(error))
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.items()))
    if options.folder:
        print(*(f"{count:5} {reason}" for reason, count in reasons.most_common()), sep="\n")
    print(f"{sum(tally.values())} {_what(options)}: {counts}; {time.monotonic() - begun:.0f} s")
    return 1 if tally["different"] else 0


def _judge(case: ProofCase, limits: Limits) -> tuple[str, str]:
    """Prints a case's verdict; returns its kind and reason."""
    try:
        verdict = case.judge(limits)
    except ProgramRejected as error:
        print(f"{case.name} is rejected: {error}", file=sys.stderr, flush=True)
        return "rejected", ""
    kind = outcome(verdict)
    print(f"{case.name} {kind} in {verdict.seconds:.1f} s{verdict.reason and ': '}{verdict.reason}", flush=True)
    if verdict.kind == "different":
        print(verdict.counterexample, case.text(), sep="\n", flush=True)
    return kind, verdict.reason


def _what(options: argparse.Namespace) -> str:
    """Returns the words for what is compared."""
    if options.folder:
        return f"functions of {options.folder} and their IR"
    this, other = f"{options.target} at {options.level}", f"{options.other_target or options.target} at "
    other += options.level if options.other_target else "-O0"
    return f"programs, {this} and its IR" if options.source else f"programs, {other} and {this}"


if __name__ == "__main__":
    sys.exit(main())
