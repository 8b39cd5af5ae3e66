"""A kernel of a code object's file, with the arguments and extents that options describe: for exec, trace and bench."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.code_object.code_object import first_names
from simgpu.hardware.code_object.demangled import kernels_by_name, spellings
from simgpu.tools.cases.sources import FILE, add_compiler_option, read_code_object
from simgpu.tools.shared.arrays import FILLS, TYPES, array_type, require_memory
from simgpu.tools.shared.errors import UsageError, did_you_mean
from simgpu.tools.shared.launching import Watch, add_device_options, device_of, launch, launch_work

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.hardware import hip
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.hardware.code_object.kernels import KernelInfo

COMPARED = 300  # most kernels whose names are compared with one that none has: each takes a millisecond
ARGUMENTS = f"""arguments, one --arg each, in the kernel's order, hidden ones left out:
  in.npy            a buffer with the file's array
  zeros:f32:1024    a buffer of 1024 zeros; shapes as 64x16;
                    fills: {", ".join(FILLS)}
  i32:5  f32:1.5    a number of that type; u64:0 for a null pointer
  bytes:0a0b0c0d    a struct by value, in hexadecimal
types: {", ".join(TYPES)}
"""


def add_launch_options(parser: ArgumentParser, against_sim: bool = False) -> None:
    """Adds FILE, the options of its launch, and the device options."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = ARGUMENTS
    parser.add_argument("file", metavar="FILE", help=FILE)
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--grid", metavar="X[,Y[,Z]]", help="workgroups")
    extent.add_argument("--global-size", metavar="X[,Y[,Z]]", help="work-items; the last workgroups may be partial")
    parser.add_argument("--kernel", metavar="K", help="the kernel (default: the only one)")
    add_argument_options(parser)
    parser.add_argument("--target", help="board or architecture (default: the file's)")
    add_compiler_option(parser)
    add_device_options(parser, against_sim)


def add_argument_options(parser: Any) -> None:
    """Adds a launch's arguments, block and dynamic LDS to a parser or a group."""
    parser.add_argument("--arg", action="append", default=[], metavar="SPEC", help="an argument, in order (`simgpu exec --help`)")
    parser.add_argument("--block", metavar="X[,Y[,Z]]", help="work-items a workgroup (default: the kernel's requirement, or 64)")
    parser.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="LDS beyond the kernel's own")


@dataclass(frozen=True)
class Input:
    """An argument before the launch: a buffer's array, or a value."""

    spec: str
    array: np.ndarray | None = None
    value: object = None


@dataclass(frozen=True)
class FileKernel:
    """A kernel of a file, and how to launch it."""

    device: Device | hip.Device
    code: CodeObject
    info: KernelInfo
    inputs: list[Input]
    extents: dict[str, Any]  # grid or global_size, block, dynamic_lds

    def bind(self, device: Device | hip.Device) -> tuple[Any, list[object], dict[int, Any]]:
        """Returns the loaded kernel, its arguments, and the buffers by argument."""
        buffers = {index: device.upload(entry.array) for index, entry in enumerate(self.inputs) if entry.array is not None}
        arguments = [buffers.get(index, entry.value) for index, entry in enumerate(self.inputs)]
        return device.load(self.code.data)[self.info.name], arguments, buffers

    def execute(self, device: Device | hip.Device, watch: Watch | None = None) -> tuple[Any, dict[int, np.ndarray]]:
        """Launches once and returns the run and, by argument, the arrays of the buffers afterwards."""
        kernel, arguments, buffers = self.bind(device)
        outcome: Any = launch_work(self.info.title, lambda: launch(kernel, watch, args=arguments, **self.extents), watch)
        after = {}
        for index, buffer in buffers.items():
            before = self.inputs[index].array
            assert before is not None
            after[index] = buffer.download(before.dtype, before.shape)
        return outcome, after


def file_kernel(options: Namespace, watch: Watch | None = None) -> FileKernel:
    """Makes the launch that the options of `add_launch_options` describe. UsageError names the fault in the file or an
    argument."""
    code = read_code_object(options.file, options.target, options.options)
    info = code.kernels[kernel_named(code.kernels, options.kernel)]
    if not options.grid and not options.global_size:
        raise UsageError("one of --grid (workgroups) and --global-size (work-items) is needed")
    device = device_of(options, options.target or code.target, watch)
    make = argument_maker(np.random.default_rng(options.seed), device.arch)
    inputs = [make(spec) for spec in options.arg]
    default = info.required_workgroup_size or (64,)
    _require_types(info, inputs)
    extents: dict[str, Any] = {
        "block": parse_extents("--block", options.block) if options.block else tuple(default),
        "dynamic_lds": options.dynamic_lds,
    }
    name = "grid" if options.grid else "global_size"
    extents[name] = parse_extents(f"--{name.replace('_', '-')}", options.grid or options.global_size)
    return FileKernel(device, code, info, inputs, extents)


def _require_types(info: KernelInfo, inputs: Sequence[Input]) -> None:
    """Raises UsageError for a float where the kernel takes an integer or a pointer, and for an integer where it takes a float."""
    for index, (argument, entry) in enumerate(zip(info.typed_arguments, inputs, strict=False)):
        if not isinstance(entry.value, (np.generic, np.ndarray)) or entry.value.ndim:
            continue
        is_float = entry.value.dtype.kind not in "iu"
        wanted = "u64" if argument.is_pointer else argument.value_type
        if wanted and is_float != wanted.startswith(("f", "bf")):
            name, number = info.named_arguments[index].name, entry.spec.partition(":")[2]
            example = "a buffer, as zeros:f32:64, or u64:0" if argument.is_pointer else f"{wanted}:{number}"
            taken = "a pointer" if argument.is_pointer else wanted
            raise UsageError(f"--arg {entry.spec}: argument {name} of {info.title} is {taken}: give {example}")


def kernel_named(kernels: Mapping[str, Any], name: str | None) -> str:
    """Returns the kernel that `name` means (`kernels_by_name`), or the only one. UsageError lists the kernels."""
    if name is None and len(kernels) == 1:
        return next(iter(kernels))
    if name is None:
        raise UsageError(f"the file has {len(kernels)} kernels: choose one with --kernel ({first_names(kernels)})")
    if name in kernels:
        return name
    found = kernels_by_name(kernels, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"--kernel {name} may be any of: {first_names(found)}; write more of it")
    known = dict.fromkeys(spelling for each in islice(kernels, COMPARED) for spelling in spellings(each)[1:])
    raise UsageError(f"no kernel {name!r}{did_you_mean(name, known)}; the file has: {first_names(kernels)}")


def argument_maker(rng: np.random.Generator, arch: str) -> Callable[[str], Input]:
    """Returns a function that parses an --arg into its Input. It raises UsageError, which lists the forms of an argument."""

    def make(spec: str) -> Input:
        head, _, rest = spec.partition(":")
        if spec.endswith(".npy"):
            return Input(spec, array=load_array(spec, f"--arg {spec}"))
        if head in FILLS:
            name, _, extents = rest.partition(":")
            kind = array_type(name, arch)
            shape = parse_extents(f"--arg {spec}", extents, dimensions=32)
            require_memory(2 * kind.itemsize * int(np.prod(shape, dtype=object)), f"--arg {spec}")
            return Input(spec, array=FILLS[head](rng, kind, shape))
        if head == "bytes":
            try:
                return Input(spec, value=bytes.fromhex(rest))
            except ValueError:
                raise UsageError(f"--arg {spec}: give pairs of hexadecimal digits, as bytes:0a0b") from None
        if head in TYPES and rest:
            return Input(spec, value=_scalar(spec, array_type(head, arch), rest))
        raise UsageError(
            f"--arg {spec}: give a file ending in .npy, FILL:TYPE:SHAPE ({', '.join(FILLS)}), "
            "TYPE:NUMBER or bytes:HEX"
        )

    return make


def load_array(path: str, option: str) -> np.ndarray:
    """Reads the array of an .npy file. Raises UsageError for an array of objects and for a file that is shorter than it claims.

    option: the option and its value, as --arg in.npy, which the message names.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped, so a false size in the header allocates nothing
        if isinstance(array, np.ndarray) and array.dtype.itemsize:
            return np.array(array, order="C", subok=False)
        why = "elements of no bytes" if isinstance(array, np.ndarray) else f"it holds {type(array).__name__}"
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python, and reports Python's message
        why = " ".join(str(error).split())[:200] or type(error).__name__
    raise UsageError(f"{option}: no array of plain numbers in this file ({why})")


def _scalar(spec: str, kind: np.dtype, text: str) -> np.ndarray | np.generic:
    """Returns a numpy scalar (or 0-d array) of the type, so that its bits reach the kernel unchanged."""
    try:
        if kind.kind not in "iu":
            with np.errstate(over="ignore"):
                return np.asarray(float(text)).astype(kind)
        value = int(text, 0)
    except ValueError:
        raise UsageError(f"--arg {spec}: {text!r} is no {kind} number") from None
    limits = np.iinfo(kind)
    if not limits.min <= value <= limits.max:
        raise UsageError(f"--arg {spec}: {value} does not fit {kind}, {limits.min} to {limits.max}")
    return kind.type(value)


def parse_extents(option: str, text: str, dimensions: int = 3) -> tuple[int, ...]:
    """Parses extents such as 64, 64,2,1 or 64x2x1, each at least 1."""
    try:
        extents = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        extents = ()
    if not 1 <= len(extents) <= dimensions or min(extents) < 1:
        raise UsageError(
            f"{option}: {text!r} is no extent: give 1 to {dimensions} whole numbers >= 1, as 64,2,1 or 64x2x1"
        )
    return extents
