"""`simgpu judge`: a generated kernel against a reference: right, honest, and how fast."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from simgpu import hardware
from simgpu.tools.judge.verdict import ACCEPTED, JudgeLimits, Judgement
from simgpu.tools.shared.console import add_json_option, print_json, progress
from simgpu.tools.shared.errors import UsageError

HIP, TORCH = "hip", "torch"
SUFFIXES = {".hip": HIP, ".py": TORCH}
GIBIBYTE = 1 << 30
USAGE = """k.hip: kernels, launched as comments in it say; the reference has SIZES, ARGUMENTS and reference() of numpy.
new.py: ModelNew with Triton kernels; the reference has Model, get_inputs() and get_init_inputs(), as KernelBench's.
Status: 0 accepted, 1 rejected, 2 not judged: the command line or the reference is wrong.
What is looked at, and the JSON document: simgpu help judge-generated-kernels
The candidate's Python code has your rights: run strangers' in a container.
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("candidate", metavar="CANDIDATE", help="kernels (.hip), or a module with Triton kernels (.py)")
    parser.add_argument("--reference", metavar="REF.PY", required=True, help="the reference")
    parser.add_argument("--target", default="mi300x", metavar="BOARD", help="board or architecture (default: mi300x)")
    parser.add_argument("--seed", type=int, default=0, help="seed of sizes and inputs (default: 0); use a secret one for rewards")
    parser.add_argument("--strict", action="store_true", help="reject for notes, too: NaN, strided inputs, parts left to PyTorch")
    parser.add_argument("--cases", type=int, default=4, metavar="N", help="drawn sets of sizes (default: 4)")
    text = "of a .py: the reference's sizes, or also drawn ones (default: given)"
    parser.add_argument("--shapes", choices=("given", "drawn"), default="given", help=text)
    text = "of a .py: change a module-level whole number of the reference, as batch_size=16"
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N", help=text)
    text = "most elements of the inputs (default: 16777216)"
    parser.add_argument("--elements", type=int, default=1 << 24, metavar="N", help=text)
    text = "of a launch of HIP kernels, or of a call (default: 120)"
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help=text)
    text = "of each child process, GiB (default: 16)"
    parser.add_argument("--memory", type=float, default=16.0, metavar="GIB", help=text)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Judges the candidate; status 1 if it is rejected."""
    hardware.target(options.target)
    judgement = Judgement(options.candidate, options.reference, options.target, options.seed, options.strict, _form(options))
    limits = JudgeLimits(options.timeout, int(options.memory * GIBIBYTE), options.cases, options.elements)
    with progress(f"judging {options.candidate}"):
        if judgement.form == HIP:
            from simgpu.tools.judge.hip_form import HipJudge

            HipJudge(judgement, limits).judge()
        else:
            from simgpu.tools.judge.torch_form import TorchJudge

            TorchJudge(judgement, limits, options.shapes, _sizes(options.size)).judge()
    if options.json:
        print_json(judgement.document())
    else:
        print("\n".join(judgement.lines()))
    return 0 if judgement.verdict == ACCEPTED else 1


def _form(options: Namespace) -> str:
    """Returns the form of the candidate, after a look at files, numbers and packages. Raises UsageError."""
    for name in (options.candidate, options.reference):
        if not Path(name).is_file():
            raise UsageError(f"{name}: no such file")
    form = SUFFIXES.get(Path(options.candidate).suffix)
    if form is None:
        raise UsageError(f"{options.candidate}: a candidate is a file of HIP kernels (.hip) or a Python module (.py)")
    for name, least in (("seed", 0), ("cases", 1), ("elements", 1)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} {getattr(options, name)}: give {least} or more")
    for name in ("timeout", "memory"):
        if not 0 < getattr(options, name) < 1e6:
            raise UsageError(f"--{name} {getattr(options, name):g}: give a number above 0, below a million")
    if form == HIP and (options.size or options.shapes != "given"):
        raise UsageError("--size and --shapes are for modules (.py): the reference of HIP kernels has SIZES")
    for package in ("torch", "triton") if form == TORCH else ():
        if find_spec(package) is None:
            raise UsageError(f"a module (.py) needs {package}, which is not installed: pip install {package}")
    return form


def _sizes(given: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in given:
        name, _, number = one.partition("=")
        if not name.isidentifier() or not number.isdecimal():
            raise UsageError(f"--size {one}: give a name and a whole number, as batch_size=16")
        found[name] = int(number)
    return found
