"""Command `simgpu`: parses, dispatches to a verb's module, turns errors into a line and a status.

An error is one line; a second line may say what to do. Status: 0 fine; 1 a wrong result, a finding, or an error that the kernel
raised; 2 something to put right before running. A verb is a row of VERBS and a module with `configure(parser)` and
`run(options) -> status`. The module is imported only when its verb is used.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from simgpu.hardware.errors import HipKernelError, SimError
from simgpu.tools.shared.errors import KernelFailed
from simgpu.tools.shared.parser import Parser, SubParsers

# Verbs by what they are for, with a line each for `simgpu --help`, which shows FIRST before the others.
GROUPS = {
    "find bugs": {
        "check": "run a kernel, report races, missing waits, hazards, bad accesses",
        "lint": "check every path of a kernel's code, without launching it",
        "same": "tell if two kernels compute the same sums and products, exactly",
        "exec": "run any kernel on your arrays, and compare its results",
        "judge": "judge a generated kernel: is it right, honest and fast?",
        "hip": "run a HIP program, unmodified, on simulated GPUs",
        "triton": "run a Python program whose Triton kernels use a simulated GPU",
        "debug": "step a workgroup forward and backward; breakpoints, watchpoints",
        "why": "follow an element of a result back to arguments and constants",
        "prove": "prove a compilation right by its IR, or equal to another",
        "museum": "show public bugs as small kernels, before and after their repair",
        "litmus": "run litmus tests of the memory model on a target's caches",
        "dap": "serve the debugger to VS Code, Neovim and other editors",
    },
    "look": {
        "layout": "show which lane and register hold which matrix element",
        "disasm": "list a code object's kernels: resources, instructions",
        "trace": "print a wave's registers at a place in a running kernel",
        "lds": "find LDS bank conflicts, and the padding that avoids them",
        "doctor": "report what this machine lacks, and how to get it",
        "warm": "compile handlers of common instructions before they are needed",
        "help": "print a page of the documentation, or a list of pages",
    },
    "time": {
        "time": "estimate a launch's time on a real GPU, and where it stalls",
        "profile": "find what to change first, and the time without each cause",
        "bench": "time many launches: median, spread, TFLOPS, GB/s",
        "validate-time": "compare the model of time with published measurements",
    },
    "generate": {
        "run": "derive and run a GEMM or attention, and compare with float64",
        "emit": "write a derived kernel as assembly or as a code object",
        "derive": "print tile sizes, the limit that binds, and every slack",
        "tree": "print an operator's algorithm tree",
        "report": "print resources against limits, derived and assembled",
        "asm": "assemble or compile a file into a code object",
        "sweep": "run, check or time many shapes, types and targets",
    },
    "research": {
        "probe": "test the layout of every matrix instruction",
        "paper": "recompute every number of the paper",
        "regret": "compare closed-form tiles with an exhaustive search",
        "baselines": "compare the tiles of a GEMM with those of other libraries",
        "tune": "count the trials that a search of tiles needs",
    },
}
FIRST = ("check", "lint", "exec", "hip", "triton", "debug", "why", "layout", "time", "profile", "run", "emit")
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
# Verbs that multiply no matrices with numpy.
WITHOUT_BLAS = ("lint", "hip", "debug", "why", "layout", "disasm", "trace", "lds", "time", "profile")
BLAS_THREADS = "OPENBLAS_NUM_THREADS"  # OpenBLAS reads it once, when numpy loads it
FINE, WRONG, USAGE = 0, 1, 2
# Shells report these when SIGINT or SIGPIPE ended a process.
INTERRUPTED, BROKEN_PIPE = 130, 141
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Version(argparse.Action):
    """Prints the versions of simgpu, clang and the host; imports the modules for that only then."""

    def __call__(self, parser: argparse.ArgumentParser, *unused: Any) -> NoReturn:
        from simgpu.tools.verbs.doctor import version_lines

        print("\n".join(version_lines()))
        parser.exit(FINE)


class Completion(argparse.Action):
    """Prints a shell's completion of every verb; imports the modules of all verbs."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, shell: Any, *unused: Any) -> NoReturn:
        from simgpu.tools.shared.completion import completion

        print(completion(shell, {verb: (text, verb_parser(verb)) for verb, text in VERBS.items()}), end="")
        parser.exit(FINE)


def main(argv: Sequence[str] | None = None, on_gpu: bool = False) -> int:
    """Runs the command line `argv` (default: the process's) and returns the exit status; never raises.

    on_gpu: this process may use a real GPU. If not, `--device hip` runs in a process of its own.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if word in VERBS), None)
    try:
        status = _dispatch(arguments, verb, on_gpu)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse after --help and --version
        return stop.code if isinstance(stop.code, int) else USAGE
    except BrokenPipeError:
        _abandon_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return _fail(verb, "interrupted", INTERRUPTED)
    except (KernelFailed, HipKernelError) as error:
        return _fail(verb, str(error), WRONG, error.advice)
    except SimError as error:
        return _fail(verb, str(error), USAGE, error.advice)
    except MemoryError as error:
        return _fail(verb, f"out of memory: {error or 'no details'}; choose smaller sizes", USAGE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        advice = "make room, or name another place" if error.errno in NO_ROOM else "check the path"
        return _fail(verb, f"{where}{error.strerror or error}; {advice}", USAGE)
    except Exception as error:  # a bug of ours: still one line, with the place to report
        return _fail(verb, _bug(error), WRONG)


def verb_parser(verb: str) -> Parser:
    """Returns the parser of one verb, with its own options."""
    made = Parser(prog=f"simgpu {verb}")
    _configure(made, verb)
    return made


def _configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Adds a verb's options, and its USAGE, if it has one, as the end of the help."""
    module = _module(verb)
    parser.epilog = getattr(module, "USAGE", None)
    module.configure(parser)


def overview() -> str:
    """Returns the text of `simgpu --help` above its options: FIRST by group, then the other verbs by group."""
    lines = ["Runs, checks and times kernels of AMD CDNA GPUs without a GPU."]
    for first in (True, False):
        lines += [] if first else ["", "Further verbs"]
        for group, verbs in GROUPS.items():
            shown = [f"  {verb:14}{text}" for verb, text in verbs.items() if (verb in FIRST) == first]
            lines += ["", f"{group}:", *shown] if shown else []
    return "\n".join((*lines, "", "`simgpu VERB --help` lists a verb's options, `simgpu help` the documentation."))


def gpu_process() -> NoReturn:
    """Runs the process's command line in a process that may use a real GPU (`tools/shared/processes.py`).

    Ends without exit handlers: HIP's would wait for a kernel that hangs.
    """
    status = main(on_gpu=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _dispatch(arguments: list[str], verb: str | None, on_gpu: bool) -> int:
    parser = Parser(
        prog="simgpu", usage="simgpu VERB ...", description=overview(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version, clang's and the host's")
    text = "print a completion script for a shell; its first line says where to install it"
    parser.add_argument("--completion", action=Completion, choices=("bash", "zsh", "fish"), help=text)
    text = "show no progress; without it, a terminal's stderr shows long work"
    parser.add_argument("--quiet", action="store_true", help=text)
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=Parser, prog="simgpu", help=argparse.SUPPRESS
    )
    module = None if verb is None else _module(verb)

    def configure(made: argparse.ArgumentParser) -> None:
        assert verb is not None
        _configure(made, verb)
        _add_quiet(text, made)
        if {"-h", "--help"} & set(arguments):
            from simgpu.tools.shared.parser import add_examples

            add_examples(made, verb)

    parsers = SubParsers(verbs)
    for name in VERBS:
        parsers.announce(name, configure, functools.partial(VERBS.__getitem__, name))
    options = parser.parse_args(arguments, argparse.Namespace(words=arguments))
    assert module is not None
    if getattr(options, "device", "sim") == "hip" and not on_gpu:
        from simgpu.tools.shared.processes import supervise

        return supervise(arguments)
    if not options.quiet:
        return int(module.run(options))
    from simgpu.tools.shared.console import quiet

    with quiet():
        return int(module.run(options))


def _add_quiet(text: str, parser: argparse.ArgumentParser) -> None:
    """Adds --quiet to a verb's parser and to its sub-parsers."""
    parser.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help=text)
    for action in parser._actions:
        if isinstance(action.choices, SubParsers):
            action.choices.for_each(functools.partial(_add_quiet, text))
        elif isinstance(action, argparse._SubParsersAction):
            for other in action.choices.values():
                _add_quiet(text, other)


def _module(verb: str) -> Any:
    """Imports a verb's module. OpenBLAS starts a thread for each core, unless the verb has no use for them."""
    if verb in WITHOUT_BLAS and BLAS_THREADS not in os.environ:
        os.environ[BLAS_THREADS] = "1"
        try:
            import numpy  # noqa: F401
        finally:
            del os.environ[BLAS_THREADS]  # programs that the verb starts have their own
    return importlib.import_module(f"simgpu.tools.verbs.{verb.replace('-', '_')}")


def _fail(verb: str | None, message: str, status: int, advice: str = "") -> int:
    line = " ".join(message.split())
    print(f"simgpu{f' {verb}' if verb else ''}: {line}", file=sys.stderr)
    if advice:
        print(advice, file=sys.stderr)
    return status


def _bug(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    said = f"{type(error).__name__}: {error}"
    return f"internal error, {said} (at {place}); please report it with the command line"


def _abandon_stdout() -> None:
    """Redirects stdout to the null device: its reader is gone, and buffered output must not raise when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
