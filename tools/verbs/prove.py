"""`simgpu prove`: two kernels equal, machine code as its IR, one kernel without faults or as planned; or a counterexample."""

from __future__ import annotations

import io
import math
import shlex
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.cases.coverage import coverage_document, coverage_lines, judge_kernel, planned_kernel
from simgpu.tools.cases.coverage_launch import evidence
from simgpu.tools.cases.file_kernel import kernel_named
from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.refinement import compile_function, functions_of, ir_module, is_ir, refinement, refinement_lines, tally
from simgpu.tools.cases.safety import add_safety_options, assumptions_of, properties_of, safety_document, safety_lines
from simgpu.tools.cases.sources import FILE, add_compiler_option, compiler_options, read_code_object
from simgpu.tools.shared.console import add_json_option, print_json, progress, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.shared.parser import own_options

if TYPE_CHECKING:
    from simgpu.hardware.code_object import CodeObject
    from simgpu.proof.counterexample import Counterexample
    from simgpu.proof.equal import Verdict
    from simgpu.proof.safety.search import UnsafeLaunch
    from simgpu.proof.solver import Limits

STATUS = {"equal": 0, "proved": 0, "different": 1, "counterexample": 1, "unknown": 3}
USAGE = """examples:
  simgpu prove a.co b.co --kernel f
  simgpu prove k.ll --target mi300x --options=-O2
  simgpu prove k.ll --target mi300x --options=-O0 --other-options=-O3
  simgpu prove k.hip tuned.s --target mi300x --save counter
  simgpu prove gemm -m 512 -n 512 -k 512 --target mi300x
  simgpu prove k.co --no-out-of-bounds --no-race --buffer x=4*n --buffer y=4*m*n --assume 'n<=4096' --block 16,16
Exit status: 0 if it is proved; 1 if a launch shows otherwise; 3 if neither was shown; 2 for an invalid command line.
What is modelled, and what a proof assumes: simgpu help proofs
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options; OTHER, or those of OP, follow."""
    _own_options(parser)
    parser.add_argument("file", metavar="FILE|OP", help=f"{FILE}; or gemm, as in `simgpu emit`")
    text = "OTHER, the file to compare with (default: FILE by --other-options, or the IR of FILE), or options of OP"
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help=text)


def _own_options(parser: ArgumentParser) -> None:
    text = "the kernel (default: the only one); a function of LLVM IR (default: all kernels, or all functions if there are none)"
    parser.add_argument("--kernel", metavar="K", help=text)
    parser.add_argument("--other-kernel", metavar="K", help="the kernel of OTHER (default: the same name)")
    parser.add_argument("--target", help="board or architecture (default: the file's)")
    add_compiler_option(parser)
    text = "options of clang for OTHER"
    parser.add_argument("--other-options", type=compiler_options, metavar="OPTIONS", default=[], help=text)
    text = "work of the solver, in units of about a second; counted, so that no verdict depends on the machine (default: 60)"
    parser.add_argument("--effort", type=_positive, default=60.0, help=text)
    parser.add_argument("--seconds", type=_positive, default=math.inf, help="end after this time, too (default: no limit)")
    text = "the most rounds of a loop whose end depends on inputs (default: 64)"
    parser.add_argument("--rounds", type=int, default=64, help=text)
    text = "write a counterexample: NAME.0.npy, NAME.1.npy, ..., NAME.co or NAME.a.co and NAME.b.co"
    parser.add_argument("--save", metavar="NAME", help=text)
    text = "with OP: assembly or a code object with its kernel, edited (default: as `simgpu emit` makes it)"
    parser.add_argument("--code", metavar="FILE", help=text)
    add_safety_options(parser)
    add_force_option(parser)
    add_json_option(parser)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ArgumentTypeError(f"{text!r} is no number above 0 and below a million")
    return value


def run(options: Namespace) -> int:
    """Prints the verdict; its status is in STATUS."""
    try:
        from simgpu.proof.equal import compare
    except ModuleNotFoundError as error:
        if error.name != "z3":
            raise
        raise UsageError("`simgpu prove` needs the solver z3: pip install 'simgpu[prove]'") from None
    options, words = own_options(_own_options, options)
    if options.rounds < 1:
        raise UsageError(f"--rounds {options.rounds}: give 1 or more")
    properties = properties_of(options)
    if names_operator(options.file):
        if properties or options.save or options.other_kernel or options.options or options.other_options:
            raise UsageError(f"{options.file}: --save and options about files go with a FILE, which `simgpu emit --object` writes")
        return _run_coverage(options, words)
    if len(words) > 1 or any(word.startswith("-") for word in words) or options.code:
        raise UsageError(f"{' '.join(words[-1:]) or '--code'}: give one or two files, and options; see `simgpu prove --help`")
    options.other = next(iter(words), None)
    if properties:
        return _run_safety(options, properties)
    if is_ir(options.file) and not (options.other or options.other_options or options.other_kernel):
        return _run_refinement(options)
    other = options.other or options.file
    if not options.other and options.options == options.other_options:
        raise UsageError("give a second file, or compile FILE twice: --options=-O0 --other-options=-O3")
    codes = [
        read_code_object(path, options.target, given)
        for path, given in ((options.file, options.options), (other, options.other_options))
    ]
    names = [kernel_named(codes[0].kernels, options.kernel)]
    names.append(kernel_named(codes[1].kernels, options.other_kernel or (options.kernel and names[0])))
    with progress(f"proving {codes[0].kernels[names[0]].title}"):
        verdict = compare(codes[0], codes[1], names[0], names[1], _limits(options))
    shown = verdict.counterexample
    arguments = [_argument(options, codes[0], names[0], shown, at) for at in range(len(shown.arguments))] if shown else []
    commands = _commands(options, codes, names, shown, arguments) if shown and options.save else []
    if options.json:
        print_json(_document(verdict, arguments, commands))
    else:
        title = codes[0].kernels[names[0]].title
        _print(f"{title} of {options.file} and {other}", options, verdict, commands)
    return STATUS[verdict.kind]


def _limits(options: Namespace) -> Limits:
    from simgpu.proof.solver import Limits

    return Limits(options.effort, options.rounds, options.seconds)


def _argument(options: Namespace, code: CodeObject, name: str, shown: Counterexample | UnsafeLaunch, at: int) -> str:
    """Returns an argument as --arg takes it; writes a buffer's file if --save names one."""
    value = shown.arguments[at]
    if not isinstance(value, np.ndarray):
        raw = value if isinstance(value, bytes) else value.tobytes()
        argument = code.kernels[name].explicit_arguments[at]
        kind = argument.value_type
        if kind[:1] in ("i", "u") and kind[1:].isdecimal():
            return f"{kind}:{int.from_bytes(raw, 'little', signed=kind[0] == 'i')}"
        return f"bytes:{raw.hex()}"
    if not options.save:
        return f"{value.size} bytes"
    path = f"{options.save}.{at}.npy"
    claim([path], options.force)
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    write(path, file.getvalue(), options.force)
    return path


def _commands(
    options: Namespace, codes: list[CodeObject], names: list[str], shown: Counterexample, arguments: list[str]
) -> list[str]:
    """Writes both code objects; returns the commands that run the counterexample."""
    return [
        _command(options, "exec", code, name, f".{letter}.co", shown, arguments)
        for letter, code, name in zip("ab", codes, names, strict=True)
    ]


def _command(
    options: Namespace, verb: str, code: CodeObject, name: str, suffix: str, shown: Counterexample | UnsafeLaunch,
    arguments: list[str],
) -> str:  # fmt: skip
    """Writes a code object; returns the command that runs a counterexample."""
    extents = [f"--{option} {','.join(map(str, value))}" for option, value in (("grid", shown.grid), ("block", shown.block))]
    path = f"{options.save}{suffix}"
    claim([path], options.force)
    write(path, bytes(code.data), options.force)
    kernel = [f"--kernel {shlex.quote(name)}"] if len(code.kernels) > 1 else []
    lds = [f"--dynamic-lds {options.dynamic_lds}"] if options.dynamic_lds else []
    given = [f"--arg {shlex.quote(each)}" for each in arguments]
    return " ".join((f"simgpu {verb}", shlex.quote(path), *kernel, *extents, *lds, *given))


def _run_refinement(options: Namespace) -> int:
    """Prints what is shown of each function of a file of LLVM IR and its machine code."""
    if not options.target:
        raise UsageError(f"{options.file} names no target: give --target")
    module = ir_module(options.file)
    functions = functions_of(module, options.file, options.kernel)
    if options.save and len(functions) > 1:
        raise UsageError("--save is for one function: give --kernel, too")
    rows = []
    for function in functions:
        made = compile_function(module, function, options.file, options.target, options.options)
        with progress(f"proving {made.function}"):
            verdict = refinement(made, _limits(options))
        shown, arguments, command = verdict.counterexample, [], ""
        if shown and made.code:
            arguments = [_argument(options, made.code, made.kernel, shown, at) for at in range(len(shown.arguments))]
            command = _command(options, "exec", made.code, made.kernel, ".co", shown, arguments) if options.save else ""
        rows.append((made, verdict, {"function": made.function, **_document(verdict, arguments, [command] if command else [])}))
        if not options.json:
            show(*refinement_lines(made, verdict, options.file, command, len(functions) > 1))
    if options.json:
        print_json(rows[0][2] if len(rows) == 1 else {"functions": [row[2] for row in rows]})
    elif len(rows) > 1:
        show(tally([row[1] for row in rows]))
    statuses = {STATUS[row[1].kind] for row in rows}
    return 1 if 1 in statuses else max(statuses)


def _run_coverage(options: Namespace, words: list[str]) -> int:
    """Prints what is shown of the accesses and sums of an operator's kernels."""
    from simgpu.hardware.code_object import CodeObject

    target = ["--target", options.target] if options.target else []
    with progress("emitting"):
        tree, kernel = planned_kernel(options.file, [*words, *target])
    code = read_code_object(options.code, kernel.target) if options.code else CodeObject.parse(kernel.assemble())
    planned = [step.name for step in kernel.steps if step.name in code.kernels]  # a second one adds the parts of a split K
    names = [kernel_named(code.kernels, options.kernel)] if options.kernel or not planned else planned
    documents = []
    for name in names:
        second = name != kernel.name and name in planned
        with progress(f"proving {name}"):
            verdict = judge_kernel(tree, code, name, second, _limits(options))
            launch = evidence(tree, code, name) if verdict.kind == "wrong" else ""
        documents.append(coverage_document(name, tree, verdict, launch, second))
        if not options.json:
            show(*coverage_lines(code.kernels[name].title, tree, verdict, launch, second))
    if options.json:
        print_json(documents[0] if len(documents) == 1 else {"kernels": documents})
    statuses = {STATUS[document["verdict"]] for document in documents}
    return 1 if 1 in statuses else max(statuses)


def _run_safety(options: Namespace, properties: list[str]) -> int:
    """Prints what is shown of one kernel in all launches."""
    from simgpu.proof.safety.judge import judge
    from simgpu.proof.safety.sizes import BadAssumption

    given = options.other or options.other_kernel or options.other_options
    if given:
        raise UsageError(f"{given}: --no-out-of-bounds and --no-race are about one kernel")
    code = read_code_object(options.file, options.target, options.options)
    name = kernel_named(code.kernels, options.kernel)
    title = code.kernels[name].title
    try:
        with progress(f"proving {title}"):
            verdict = judge(code, name, properties, assumptions_of(options), _limits(options))
    except BadAssumption as error:
        raise UsageError(str(error)) from None
    shown = verdict.counterexample
    arguments = [_argument(options, code, name, shown, at) for at in range(len(shown.arguments))] if shown else []
    command = _command(options, "check", code, name, ".co", shown, arguments) if shown and options.save else ""
    if options.json:
        print_json(safety_document(verdict, arguments, command))
    else:
        show(*safety_lines(f"{title} of {options.file}", properties, verdict, command))
    return STATUS[verdict.kind]


def _print(what: str, options: Namespace, verdict: Verdict, commands: list[str]) -> None:
    shown = verdict.counterexample
    if verdict.kind == "equal":
        show(f"equal: {what} do the same to memory for all inputs", "assumed:")
        show(*(f"  {text}" for text in verdict.assumed))
    elif shown is None:
        show(f"unknown: {what}: {verdict.reason}")
    else:
        show(f"different: {what}", f"  {verdict.reason}")
        mine, theirs = (result.hex(" ") for result in shown.results)
        show(f"  simulated: from byte {shown.byte} of argument {shown.argument} on, {mine} and {theirs}")
        show(*(f"  {command}" for command in commands or ("--save NAME writes this launch: buffers and code objects",)))


def _document(verdict: Verdict, arguments: list[str], commands: list[str]) -> dict[str, Any]:
    shown = verdict.counterexample
    made = {"verdict": verdict.kind, "reason": verdict.reason, "seconds": verdict.seconds, "assumed": list(verdict.assumed)}
    if shown is None:
        return {**made, "counterexample": None}
    found = {name: value for name, value in asdict(shown).items() if name not in ("arguments", "results")}
    results = [result.hex() for result in shown.results]
    return {**made, "counterexample": {**found, "results": results, "arguments": arguments, "commands": commands}}
