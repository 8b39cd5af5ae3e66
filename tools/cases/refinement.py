"""`simgpu prove FILE.ll`: the functions of a file of LLVM IR, compiled, each with a kernel of its own, and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.hardware.targets import architecture
from simgpu.tools.cases.ir import compile_ir, printed_ir
from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu.hardware.code_object import CodeObject
    from simgpu.proof.equal import Verdict
    from simgpu.proof.ir.syntax import Function, IrModule
    from simgpu.proof.solver import Limits

SOURCES = (".ll", ".bc")


@dataclass(frozen=True)
class Compiled:
    """A function of IR in a code object, as a kernel or called by one."""

    function: str  # its name in the file
    kernel: str
    code: CodeObject | None
    module: IrModule | None  # with the kernel
    reason: str = ""  # if there is no code object


def is_ir(path: str) -> bool:
    """True if the file's name says that it holds LLVM IR, as text or bitcode."""
    return path.endswith(SOURCES)


def ir_module(path: str) -> IrModule:
    """Reads a file of IR. Raises OSError, ToolchainError, UsageError."""
    from simgpu.proof.ir.read import read_ir
    from simgpu.proof.ir.syntax import Unreadable

    text, log = printed_ir(Path(path).read_bytes(), Path(path).name)
    if text is None:
        raise UsageError(_first_error(log))
    try:
        return read_ir(text)
    except Unreadable as error:
        raise UsageError(f"{path}: {error}") from None


def _first_error(log: str) -> str:
    """Returns clang's first error."""
    return next((line for line in log.splitlines() if "error: " in line), log.strip().partition("\n")[0]).removeprefix("./")


def functions_of(module: IrModule, path: str, name: str | None) -> list[Function]:
    """Returns the function of a name; without one, all kernels, or all functions if there are none. Raises UsageError."""
    found = {each.title: each for each in module.defined}
    if name is not None:
        if name not in found:
            raise UsageError(f"{path} defines no function {name}; it has {', '.join(sorted(found)) or 'none'}")
        return [found[name]]
    if not found:
        raise UsageError(f"{path} defines no function")
    kernels = [each for each in found.values() if each.is_kernel]
    return kernels or list(found.values())


def compile_function(module: IrModule, function: Function, path: str, target: str, options: Sequence[str]) -> Compiled:
    """Compiles the file with a kernel that runs a function. Raises ToolchainError."""
    from simgpu.hardware.code_object import CodeObject
    from simgpu.hardware.errors import DecodeError
    from simgpu.proof.ir.read import read_ir
    from simgpu.proof.ir.syntax import Unreadable
    from simgpu.proof.ir.wrap import kernel_name, with_kernel, with_variables

    name = kernel = function.title
    if not function.is_kernel:
        try:
            kernel, module = kernel_name(function), read_ir(with_kernel(module.text, function))
        except Unreadable as reason:
            return Compiled(name, "", None, None, str(reason))
    made, log = compile_ir(with_variables(module.text), architecture(target), Path(path).with_suffix(".ll"), options)
    if made is None:
        said = _first_error(log)
        return Compiled(name, "", None, None, f"clang: {said.partition('error: ')[2] or said}")
    try:
        code = CodeObject.parse(made)
        code.kernels[kernel]  # which reads it
    except DecodeError as error:
        return Compiled(name, "", None, None, str(error))
    return Compiled(name, kernel, code, module)


def refinement(made: Compiled, limits: Limits) -> Verdict:
    """Returns the verdict on a function's machine code."""
    from simgpu.proof.equal import Verdict
    from simgpu.proof.ir.refine import refines

    if made.code is None or made.module is None:
        return Verdict("unknown", made.reason)
    return refines(made.code, made.kernel, made.module, limits)


TITLES = {"equal": "verified", "different": "wrong", "unknown": "unknown"}


def refinement_lines(made: Compiled, verdict: Verdict, path: str, command: str, short: bool) -> list[str]:
    """Returns the lines about a function. short: True if it is one of several."""
    shown, title = verdict.counterexample, TITLES[verdict.kind]
    if shown is not None:
        machine, source = (result.hex(" ") for result in shown.results)
        where = f"from byte {shown.byte} of argument {shown.argument} on"
        lines = [f"{title}: the machine code of {made.function} does not do what {path} says", f"  {verdict.reason}"]
        lines.append(f"  block {shown.block[0]}, grid {shown.grid[0]}, {where}: the machine code has {machine}, the IR {source}")
        more = "" if short else "--save NAME writes this launch: buffers and the code object"
        return [*lines, *(f"  {text}" for text in (command or more,) if text)]
    if short or verdict.kind == "unknown":
        return [f"{title}: {made.function}{verdict.reason and ': '}{verdict.reason}"]
    what = f"the machine code of {made.function} does what {path} says, for all inputs"
    return [f"{title}: {what}", "assumed:", *(f"  {text}" for text in verdict.assumed)]


def tally(verdicts: Sequence[Verdict]) -> str:
    """Returns the counts of verdicts."""
    titles = [TITLES[verdict.kind] for verdict in verdicts]
    return ", ".join(f"{titles.count(title)} {title}" for title in TITLES.values())
