"""Launches that a command line names: kernels of a file or of an operator, ready on a simulated GPU, with their arrays by name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.cases.capture import capture
from simgpu.tools.cases.execute import ready
from simgpu.tools.cases.file_kernel import FileKernel, add_launch_options, file_kernel, kernel_named
from simgpu.tools.cases.operator_options import add_operator_options, names_operator
from simgpu.tools.cases.sources import is_assembly, is_capture
from simgpu.tools.shared.console import progress
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import add_inputs_option
from simgpu.tools.shared.launching import Watch, add_device_options, launch_work
from simgpu.tools.shared.parser import Parser
from simgpu.tools.shared.seeds import add_seed_options, one_seed
from simgpu.tools.shared.source_files import source_lines

if TYPE_CHECKING:
    from simgpu import Kernel
    from simgpu.debugger.debugger import Debugger
    from simgpu.debugger.named import NamedArray
    from simgpu.hardware.code_object.arguments import Geometry


REPLAYS = ("debug", "why")  # verbs that run a launch again, in weak or late mode if the launch was
WHAT = "a code object, assembly, a folder that kerncap captured, a Triton script, a Python file with OPERATORS, or an operator"


@dataclass(frozen=True)
class Subject:
    """A kernel and its launch."""

    kernel: Kernel
    call: dict[str, Any]  # arguments of its launch
    source: str = ""  # its assembly, if known
    names: dict[str, NamedArray] | None = None  # arrays; None: the buffers by their arguments
    result: str = ""  # the operator's result, if this kernel writes it
    want: Callable[[], np.ndarray] | None = None  # computes its float64 reference
    references: Callable[[], Mapping[str, np.ndarray]] = dict  # computes `matrices`
    origins: Mapping[str, str] = field(default_factory=dict)  # Python lines of emitted code
    folders: Sequence[Path] = ()  # where its source may be

    @cached_property
    def matrices(self) -> Mapping[str, np.ndarray]:
        """Matrices that tiles may hold, in float64, by name."""
        return self.references()

    @property
    def geometry(self) -> Geometry:
        """Extents of its launch."""
        from simgpu.hardware.code_object.arguments import Geometry

        given = (self.call.get(name) for name in ("grid", "block", "dynamic_lds", "global_size"))
        grid, block, lds, size = given
        return Geometry.of(grid, block if block is not None else 64, lds or 0, size)

    def places(self, offset: int) -> list[str]:
        """Returns the source lines that led to a code offset, the outermost call first."""
        lines = [str(frame.line) for frame in reversed(self.kernel.module.code.debug.frames(self.kernel.info.start + offset))]
        if self.origins:
            lines = [self.origins[line].removeprefix("before ") for line in lines if line in self.origins]
        return lines

    def line(self, offset: int) -> str:
        """Returns the user's `file:line` of a code offset, "" if unknown."""
        if self.origins:
            return next(iter(self.places(offset)[-1:]), "")
        return str(self.kernel.module.code.debug.users_line(self.kernel.info.start + offset) or "")

    def source_text(self, place: str) -> str:
        """Returns the text of a `file:line` without blanks around it, "" if the file is not here."""
        name, _, number = place.rpartition(":")
        lines = self._files.setdefault(name, source_lines(name, self.folders)) if name and number.isdecimal() else None
        return lines[int(number) - 1].strip() if lines and 0 < int(number) <= len(lines) else ""

    @cached_property
    def _files(self) -> dict[str, list[str] | None]:
        return {}

    def debugger(self, group: tuple[int, ...] = ()) -> Debugger:
        """Returns a debugger of the launch."""
        from simgpu import debug

        with progress(f"preparing {self.kernel.title}"):
            made = debug(self.kernel, **self.call, group=group, source=self.source, names=self.names)
        made.sources = partial(source_lines, folders=self.folders)
        return made


def subject(verb: str, what: str, rest: list[str], step: str | None = None, last: bool = False) -> Subject:
    """Returns the launch that `FILE|OP ...` describes; options as for `exec` and `run`.

    step: the kernel of an operator that has several; the kernels before it are launched. last: without a step, the last kernel
    instead of the first. Raises UsageError and LaunchError.
    """
    if step is not None and not names_operator(what):
        raise UsageError(f"--step {step}: a file's kernel is named by --kernel")
    return one_of(subjects(verb, what, rest), step, last)


def subjects(verb: str, what: str, rest: list[str], compares: bool = True, ring: bool = False) -> list[Subject]:
    """Returns the launches that `FILE|OP ...` describes, in order, nothing launched; options as for `exec` and `run`.

    compares: the float64 reference will be used. ring: floats are elements of a ring. Raises UsageError and LaunchError.
    """
    options = launch_options(verb, what, rest)
    options.ring = ring
    return operator_subjects(options, compares) if names_operator(what) else [file_subject(options)]


def launch_options(verb: str, what: str, rest: list[str]) -> Namespace:
    """Parses `FILE|OP ...` with the options of `exec` and `run`. Raises UsageError."""
    operator = names_operator(what)
    inner = Parser(prog=f"simgpu {verb}" if operator else f"simgpu {verb} {what}")
    if operator:
        add_operator_options(inner, more=partial(_run_options, verb), kernels=True)
    else:
        add_launch_options(inner)
        _add_replayed(inner, verb)
    options = inner.parse_args([what, *rest])
    one_seed(options, verb)
    options.ring = False
    if options.device != "sim":
        more = "; `simgpu bench --device hip` measures" if verb == "time" else ""
        raise UsageError(f"`simgpu {verb}` uses the simulator: leave --device hip out{more}")
    return options


def one_of(launches: Sequence[Subject], step: str | None, last: bool = False) -> Subject:
    """Launches the kernels before the chosen one and returns the chosen one: the named step, or else the first or the last."""
    steps = [each.kernel.name for each in launches]
    at = (len(steps) - 1) * last if step is None else steps.index(kernel_named(dict.fromkeys(steps), step))
    for each in launches[:at]:
        launch_work(each.kernel.title, partial(each.kernel.launch, **each.call))
    return launches[at]


def _run_options(verb: str, parser: ArgumentParser) -> None:
    add_device_options(parser, against_sim=False)
    add_inputs_option(parser)
    _add_replayed(parser, verb)


def _add_replayed(parser: ArgumentParser, verb: str) -> None:
    """Adds --weak and --late to verbs that replay a launch."""
    if verb in REPLAYS:
        add_seed_options(parser, searches=False)


def file_launch(options: Namespace, watch: Watch | None = None) -> FileKernel:
    """Returns the launch of a kernel of `options.file`: a capture's own, or the one that the options of `add_launch_options`
    describe."""
    return capture(options, watch) if is_capture(options.file) else file_kernel(options, watch)


def file_subject(options: Namespace) -> Subject:
    """Returns the launch of a file's kernel, its buffers named by their arguments."""
    from simgpu.debugger.named import named_buffers

    wanted = file_launch(options)
    kernel, arguments, _ = wanted.bind(wanted.device)
    source = Path(options.file).read_text("utf-8") if is_assembly(options.file) else ""
    names = named_buffers(kernel.arguments, arguments)
    return Subject(kernel, {"args": arguments, **wanted.extents}, source, names, folders=[Path(options.file).parent])


def operator_subjects(options: Namespace, compares: bool = True) -> list[Subject]:
    """Returns the launches of an operator's kernels, in order; compares: as in `subjects`."""
    from simgpu.debugger.named import NamedArray

    operator, tree, emitted, work, buffers, calls = ready(options, compares)
    names = {
        name: NamedArray(
            buffer.address, operand.flat.dtype, operand.shape, tuple(operand.flat.itemsize * s for s in operand.strides)
        )
        for name, buffer, operand in zip(emitted.operands, buffers, work.operands, strict=True)
    }
    last, references = len(calls) - 1, partial(operator.matrices, tree, work)
    return [
        Subject(
            kernel, call, emitted.source, names, emitted.operands[work.result] if at == last else "",
            work.want if at == last else None, references, emitted.origins,
        )
        for at, (kernel, call) in enumerate(calls)
    ]
