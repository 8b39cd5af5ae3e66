"""Launch of a Triton script as a subject: the script runs unchanged up to that launch, and ends there."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.errors import LaunchError
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import Subject, subject, subjects
from simgpu.tools.shared.errors import UsageError, did_you_mean
from simgpu.tools.torch.script import status_of

if TYPE_CHECKING:
    from simgpu import Kernel
    from simgpu.debugger.named import NamedArray
    from simgpu.hardware.code_object.arguments import Geometry


class Done(BaseException):
    """Ends the script: its launch was looked at."""


def add_launch_options(parser: ArgumentParser) -> None:
    """Adds options for a script's launch and board; they come before the script, since the words after it are the script's."""
    text = "of a Triton script: KERNEL, KERNEL:N or N, the N-th launch (default: the first); before the script"
    parser.add_argument("--launch", default="1", metavar="LAUNCH", help=text)
    text = "board or architecture of a Triton script (default: mi300x); before the script"
    parser.add_argument("--board", default="mi300x", help=text)


def with_subject(
    verb: str, what: str, rest: list[str], wanted: Namespace, act: Callable[[Subject], int], last: bool = False
) -> int:
    """Calls `act` on the launch that `FILE|OP|SCRIPT ...` names and returns its status. Raises as `subject` and `at_launch`.

    wanted: the verb's options, with those of `add_launch_options` and `step`.
    """
    if is_script(what):
        return at_launch(what, rest, wanted.launch, wanted.board, act, getattr(wanted, "variables", False))
    if getattr(wanted, "variables", False):
        raise UsageError("--variables: it is for Triton scripts, which are compiled when they run; a .hip file takes --options=-O0")
    return act(subject(verb, what, rest, wanted.step, last))


def with_subjects(verb: str, what: str, rest: list[str], wanted: Namespace, act: Callable[[list[Subject]], int]) -> int:
    """Calls `act` on the launches that `FILE|OP|SCRIPT ...` names: those of an operator, one of a file or a script."""
    if is_script(what):
        return at_launch(what, rest, wanted.launch, wanted.board, lambda one: act([one]))
    return act(subjects(verb, what, rest, compares=False))


def at_launch(
    script: str, words: Sequence[str], wanted: str, board: str, act: Callable[[Subject], int], variables: bool = False
) -> int:
    """Runs a script up to a launch and returns the answer of `act`. Raises UsageError if the script or the launch does not
    exist.

    wanted: KERNEL, KERNEL:N or N, the N-th launch of the kernel, or of all; variables: kernels are compiled with the debugger's
    information about variables.
    """
    name, number = _launch(wanted)
    seen: list[str] = []
    answers: list[int] = []

    def before_launch(kernel: Kernel, geometry: Geometry, args: list[object], values: Sequence[Any]) -> None:
        seen.append(kernel.info.name)
        if (not name or kernel.info.name == name) and sum(each == name or not name for each in seen) == number:
            call = {"grid": geometry.groups, "block": geometry.block, "dynamic_lds": geometry.dynamic_lds, "args": args}
            answers.append(act(Subject(kernel, call, names=_names(values))))
            raise Done

    if run_until_done(script, words, board, {"before": before_launch}, variables):
        return answers[0]
    counts = {kernel: seen.count(kernel) for kernel in dict.fromkeys(seen)}
    listed = ", ".join(f"{kernel} ({count})" for kernel, count in counts.items()) or "none"
    raise UsageError(f"the script has no launch {wanted}{did_you_mean(name, counts)}; it launched {listed}")


def run_until_done(
    script: str, words: Sequence[str], board: str, hooks: Mapping[str, Callable[..., None]], variables: bool = False
) -> bool:
    """Runs a script on a simulated board until a hook raises Done; returns False if none does. Raises UsageError.

    hooks: functions of `simgpu.triton.Session`, by name; variables: as for `at_launch`
    """
    if importlib.util.find_spec("triton") is None:
        raise UsageError("Triton is not installed: pip install 'triton>=3.7'")
    from unittest import mock  # imports asyncio, which takes 50 ms

    import simgpu.triton
    from simgpu.triton import Session

    with simgpu.triton.device(board, threads=1), ExitStack() as stack:
        if importlib.util.find_spec("torch") is not None:
            from simgpu.tools.torch.pretend import pretended_gpu

            stack.enter_context(pretended_gpu())
        if variables:
            from simgpu.triton.variables import mark_kernels

            stack.enter_context(mark_kernels())
        for name, hook in hooks.items():  # on the class: a script may make its own device
            stack.enter_context(mock.patch.object(Session, name, staticmethod(hook)))
        try:
            status_of([script, *words])
        except Done:
            return True
        except FileNotFoundError:
            raise UsageError(f"{script}: no such program") from None
    return False


def _launch(wanted: str) -> tuple[str, int]:
    name, _, count = wanted.rpartition(":") if ":" in wanted else ("", "", wanted) if wanted.isdecimal() else (wanted, "", "1")
    if not count.isdecimal() or int(count) < 1:
        raise UsageError(f"--launch {wanted}: give KERNEL, KERNEL:2 or 2")
    return name, int(count)


def _names(values: Sequence[Any]) -> dict[str, NamedArray]:
    """Returns the tensors among a launch's arguments, by the kernel's parameters."""
    from simgpu.debugger.named import NamedArray
    from simgpu.triton.tensors import is_tensor, pointer_of

    found = {}
    for value in values:
        tensor = value.value
        if value.is_pointer and is_tensor(tensor):
            size = np.dtype(dtype_of(tensor)).itemsize
            strides = tensor.strides if isinstance(tensor, np.ndarray) else [size * step for step in tensor.stride()]
            extents = tuple(int(extent) for extent in tensor.shape)
            found[value.name] = NamedArray(pointer_of(tensor), dtype_of(tensor), extents, tuple(int(step) for step in strides))
    return found


def dtype_of(tensor: Any) -> np.dtype:
    """Returns a tensor's type; bfloat16 and 8-bit floats are those of `ml_dtypes`. Raises LaunchError for a type that numpy
    lacks."""
    if isinstance(tensor, np.ndarray):
        return tensor.dtype
    import ml_dtypes

    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise LaunchError(f"numpy has no type {name}") from None
