"""What is debugged: one kernel of a file or of an operator, ready to launch, with its arrays by name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.cases.capture import capture, is_capture
from simgpu.tools.cases.execute import ready
from simgpu.tools.cases.file_kernel import add_launch_options, file_kernel, kernel_named
from simgpu.tools.cases.operator_options import add_operator_options, names_operator
from simgpu.tools.cases.sources import is_assembly
from simgpu.tools.shared.console import progress
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import add_inputs_option
from simgpu.tools.shared.launching import add_device_options, launched
from simgpu.tools.shared.parser import Parser

if TYPE_CHECKING:
    from simgpu import Kernel
    from simgpu.debugger.debugger import Debugger
    from simgpu.debugger.named import Named
    from simgpu.hardware.code_object.arguments import Geometry


WHAT = "a code object, assembly, a folder that kerncap captured, a Triton script, or an operator"


@dataclass(frozen=True)
class Subject:
    """A kernel and its launch. want: the result's name, its float64 reference and what each element may be away from it."""

    kernel: Kernel
    call: dict[str, Any]  # of its launch
    source: str = ""  # its assembly, where known
    names: dict[str, Named] | None = None  # arrays; None: the buffers by their arguments
    want: tuple[str, np.ndarray] | None = None
    matrices: Mapping[str, np.ndarray] = field(default_factory=dict)  # references of tiles by name

    @property
    def geometry(self) -> Geometry:
        """Its launch's extents."""
        from simgpu.hardware.code_object.arguments import Geometry

        given = (self.call.get(name) for name in ("grid", "block", "dynamic_lds", "global_size"))
        grid, block, lds, size = given
        return Geometry.of(grid, block if block is not None else 64, lds or 0, size)

    def debugger(self, group: tuple[int, ...] = ()) -> Debugger:
        """A debugger of it."""
        from simgpu import debug

        with progress(f"preparing {self.kernel.name}"):
            return debug(self.kernel, **self.call, group=group, source=self.source, names=self.names)


def subject(verb: str, what: str, rest: list[str], step: str | None = None, last: bool = False) -> Subject:
    """What `FILE|OP …` describes; options as `exec` and `run` take them.

    step: the kernel of an operator that has several, of which those before it are launched; last: where none is named, it is the
    last. Raises UsageError and LaunchError.
    """
    inner = Parser(prog=f"simgpu {verb} {what}")
    operator = names_operator(what)
    if operator:
        add_operator_options(inner, more=_run_options, kernels=True)
    else:
        add_launch_options(inner)
    if step is not None and not operator:
        raise UsageError(f"--step {step}: a file's kernel is named by --kernel")
    given = inner.parse_args([what, *rest])
    if given.device != "sim":
        raise UsageError(f"`simgpu {verb}` is of the simulator: leave --device hip out")
    return _operator(given, step, last) if operator else _file(given)


def _run_options(parser: ArgumentParser) -> None:
    add_device_options(parser, against_sim=False)
    add_inputs_option(parser)


def _file(options: Namespace) -> Subject:
    from simgpu.debugger.named import named_buffers

    wanted = capture(options) if is_capture(options.file) else file_kernel(options)
    kernel, arguments, _ = wanted.bind(wanted.device)
    source = Path(options.file).read_text("utf-8") if is_assembly(options.file) else ""
    return Subject(kernel, {"args": arguments, **wanted.extents}, source, named_buffers(kernel.arguments, arguments))


def _operator(options: Namespace, step: str | None, last: bool) -> Subject:
    from simgpu.debugger.named import Named

    operator, tree, emitted, work, buffers, calls = ready(options)
    steps = [each.name for each in emitted.steps]
    at = (len(steps) - 1) * last if step is None else steps.index(kernel_named(dict.fromkeys(steps), step))
    launched(emitted.name, lambda: [entry.launch(**call) for entry, call in calls[:at]])
    kernel, call = calls[at]
    names = {
        name: Named(buffer.address, operand.flat.dtype, operand.shape, tuple(operand.flat.itemsize * s for s in operand.strides))
        for name, buffer, operand in zip(emitted.operands, buffers, work.operands, strict=True)
    }
    want = (emitted.operands[work.result], work.want()) if at == len(calls) - 1 else None
    return Subject(kernel, call, emitted.source, names, want, operator.matrices(tree, work))
