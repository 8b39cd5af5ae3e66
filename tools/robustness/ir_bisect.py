"""Names the optimization pass from which on clang compiles a program wrong: a bisection by LLVM's -opt-bisect-limit.

    python -m simgpu.tools.robustness.ir_bisect scc-of-a-removed-and
    python -m simgpu.tools.robustness.ir_bisect k.ll --target mi300x --options=-O2 --other-options=-O0 [--script wrong.sh]

A program is the name of a fault in `ir_faults.py`, whose memory is compared with the host's, or a file of LLVM IR. For a file,
`simgpu prove` finds a launch that shows the difference between both compilations; each step compiles the file again and repeats
the launch. --script writes an interestingness test for llvm-reduce. The named pass is where the result turns wrong. It may be
right itself, and only lead to code that a pass compiles wrong which always runs, such as instruction selection.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simgpu import Buffer, Device
from simgpu.hardware.errors import SimError
from simgpu.proof.counterexample import MOST_INSTRUCTIONS, Counterexample
from simgpu.proof.equal import compare
from simgpu.tools.cases.file_kernel import kernel_named
from simgpu.tools.cases.opencl import MACHINE
from simgpu.tools.cases.sources import read_code_object
from simgpu.tools.robustness import ir
from simgpu.tools.robustness.ir_exam import SEED
from simgpu.tools.robustness.ir_faults import FAULTS, CompilerFault
from simgpu.tools.robustness.ir_runs import TIMEOUT_SECONDS
from simgpu.tools.shared.hiprtc import compiler

_PASS = re.compile(r"^BISECT: running pass \((\d+)\) (.*)$", re.MULTILINE)
Wrong = Callable[[int], bool]  # whether the result is wrong if clang runs only this number of passes


def optional_passes(text: str, options: Sequence[str]) -> list[str]:
    """Returns the passes that -opt-bisect-limit counts for an IR text, in order, as "instcombine on f"."""
    with tempfile.TemporaryDirectory(prefix="simgpu-bisect-") as folder:
        source = Path(folder, "program.ll")
        source.write_text(text, "utf-8")
        command = [*compiler().clang, *options, "-mllvm", "-opt-bisect-limit=-1", "-c", str(source), "-o", f"{folder}/program.o"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return [found[2] for found in _PASS.finditer(done.stderr)]


def first_wrong(count: int, wrong: Wrong) -> int:
    """Returns the first limit up to `count` with a wrong result, if those after it are wrong as well.

    >>> first_wrong(220, lambda limit: limit >= 132)
    132
    """
    low, high = -1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wrong(middle) else (middle, high)
    return high


def blame(passes: Sequence[str], wrong: Wrong) -> str:
    """Returns a line that names the pass from which on the result is wrong."""
    at = first_wrong(len(passes), wrong)
    if at == 0:
        return "wrong without any optional pass: a pass is at fault that always runs"
    return f"wrong from pass {at} of {len(passes)} on: {passes[at - 1]}"


def blame_in_fault(fault: CompilerFault) -> str:
    """Names the pass of a known fault."""
    program = fault.example()
    expected = ir.host_memory([program], SEED)
    passes = optional_passes(program.text(gpu=True), fault.wrong.options)
    return blame(passes, lambda limit: any(ir.differences([program], expected, replace(fault.wrong, limit=limit), SEED)))


def blame_in_file(path: str, target: str, options: Sequence[str], other_options: Sequence[str], kernel: str | None) -> str:
    """Names the pass of the first options, with which a file's kernel does not do the same as with the other ones."""
    codes = [read_code_object(path, target, each) for each in (options, other_options)]
    name = kernel_named(codes[0].kernels, kernel)
    verdict = compare(codes[0], codes[1], name, name)
    shown = verdict.counterexample
    if shown is None:
        return f"{verdict.kind}: {verdict.reason or 'both compilations do the same'}"
    right = _after(bytes(codes[1].data), target, name, shown)

    def wrong(limit: int) -> bool:
        code = read_code_object(path, target, [*options, "-mllvm", f"-opt-bisect-limit={limit}"])
        return _after(bytes(code.data), target, name, shown) != right

    arch = codes[0].target.partition(":")[0]
    clang = [*MACHINE, *options, "-Wno-override-module", f"-mcpu={arch}"]
    return blame(optional_passes(Path(path).read_text("utf-8"), clang), wrong)


def _after(code: bytes, target: str, name: str, shown: Counterexample) -> list[bytes] | str:
    """Returns the bytes of all buffers after the launch, or its error."""
    gpu = Device(target, max_instructions=MOST_INSTRUCTIONS)
    given = [gpu.upload(value) if isinstance(value, np.ndarray) else value for value in shown.arguments]
    try:
        gpu.load(code)[name].launch(grid=shown.grid, block=shown.block, args=given)
        return [value.download(np.uint8).tobytes() for value in given if isinstance(value, Buffer)]
    except SimError as error:
        return type(error).__name__


def reduction_script(target: str, options: str, other_options: str, kernel: str | None) -> str:
    """Returns a test for `llvm-reduce --test`: exit status 0 while both compilations of its file differ.

    >>> print(reduction_script("mi300x", "-O2", "-O0", None).splitlines()[-1])
    test $? -eq 1
    """
    chosen = f" --kernel {shlex.quote(kernel)}" if kernel else ""
    command = f'simgpu prove "$1" --target {shlex.quote(target)}{chosen} {shlex.quote(f"--options={options}")}'
    command += f" {shlex.quote(f'--other-options={other_options}')} --quiet >/dev/null 2>&1"
    use = "# llvm-reduce --test=THIS k.ll; status 1 of simgpu prove: the kernels differ"
    return "\n".join(("#!/bin/sh", use, command, "test $? -eq 1")) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.ir_bisect", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("program", help="a fault's name, `all` for every fault, or a file of LLVM IR (.ll)")
    parser.add_argument("--target", default="gfx942", help="of a file (gfx942)")
    parser.add_argument("--options", default="-O2", help="of clang, with which the file is compiled wrong (-O2)")
    parser.add_argument("--other-options", default="-O0", help="with which it is compiled right (-O0)")
    parser.add_argument("--kernel", help="of a file (default: the only one)")
    parser.add_argument("--script", metavar="FILE", help="write a test for llvm-reduce")
    options = parser.parse_args(argv)
    faults = [fault for fault in FAULTS if options.program in (fault.name, "all")]
    for fault in faults:
        print(f"{fault.name}, {fault.wrong}: {blame_in_fault(fault)}", flush=True)
    if faults:
        return 0
    if not Path(options.program).is_file():
        parser.error(f"{options.program}: no such file, and no fault; faults are {', '.join(fault.name for fault in FAULTS)}")
    if options.script:
        script = Path(options.script)
        script.write_text(reduction_script(options.target, options.options, options.other_options, options.kernel))
        script.chmod(0o755)
    first, other = shlex.split(options.options), shlex.split(options.other_options)
    print(blame_in_file(options.program, options.target, first, other, options.kernel))
    return 0


if __name__ == "__main__":
    sys.exit(main())
