"""`simgpu exec`: any kernel of any code object, simulated or on a GPU, arguments from .npy files or generated, results to .npy."""

from __future__ import annotations

import io
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.arrays import FILLS, TYPES, array_type, require_memory
from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import (
    add_device_options,
    device_of,
    has_errors,
    is_simulated,
    launched,
    run_document,
    show_run,
    simulated_device,
)
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.verbs.disasm import kernel_named, read_code_object

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.hardware import hip
    from simgpu.hardware.code_object.code_object import CodeObject, Kernel

ARGUMENTS = f"""arguments, one --arg each, in the kernel's order, hidden ones left out:
  in.npy            a buffer with the file's array
  zeros:f32:1024    a buffer of 1024 zeros; shapes as 64x16;
                    fills: {", ".join(FILLS)}
  i32:5  f32:1.5    a number of that type; u64:0 for a null pointer
  bytes:0a0b0c0d    a struct by value, in hexadecimal
types: {", ".join(TYPES)}
"""


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_launch_options(parser, against_sim=True)
    parser.add_argument(
        "--save",
        "--out",
        action="append",
        default=[],
        metavar="I=F.NPY",
        help="write buffer argument I (from 0) here",
    )
    add_force_option(parser)
    add_json_option(parser)


def add_launch_options(parser: ArgumentParser, against_sim: bool = False) -> None:
    """FILE, what is launched of it, and where."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = ARGUMENTS
    parser.add_argument(
        "file", metavar="FILE", help="code object, offload bundle, or host file with one inside"
    )
    parser.add_argument("--kernel", metavar="K", help="the kernel (default: the only one)")
    parser.add_argument("--arg", action="append", default=[], metavar="SPEC", help="an argument, see below")
    extent = parser.add_mutually_exclusive_group(required=True)
    extent.add_argument("--grid", metavar="X[,Y[,Z]]", help="workgroups")
    extent.add_argument(
        "--global-size", metavar="X[,Y[,Z]]", help="work-items; the last workgroups may be partial"
    )
    parser.add_argument(
        "--block",
        metavar="X[,Y[,Z]]",
        help="work-items a workgroup (default: what the kernel requires, or 64)",
    )
    parser.add_argument(
        "--dynamic-lds", type=int, default=0, metavar="BYTES", help="LDS beyond the kernel's own"
    )
    parser.add_argument("--target", help="board or architecture (default: the file's)")
    add_device_options(parser, against_sim)


@dataclass(frozen=True)
class Asked:
    """What the options of `add_launch_options` describe; extents: grid or global_size, block, dynamic_lds."""

    device: Device | hip.Device
    code: CodeObject
    kernel: Kernel
    inputs: list[Input]
    extents: dict[str, Any]


def asked(options: Namespace) -> Asked:
    """Reads the file and makes the arguments; UsageError says what is wrong with either."""
    code = read_code_object(options.file, options.target)
    info = code.kernels[kernel_named(code.kernels, options.kernel)]
    device = device_of(options, options.target or code.target)
    make = argument_maker(np.random.default_rng(options.seed), device.arch)
    inputs = [make(spec) for spec in options.arg]
    default = info.required_workgroup_size or (64,)
    extents: dict[str, Any] = {
        "block": parse_extents("--block", options.block) if options.block else tuple(default),
        "dynamic_lds": options.dynamic_lds,
    }
    name = "grid" if options.grid else "global_size"
    extents[name] = parse_extents(f"--{name.replace('_', '-')}", options.grid or options.global_size)
    return Asked(device, code, info, inputs, extents)


def run(options: Namespace) -> int:
    """Launches the kernel; status 1 if it errs or has findings."""
    saves = parse_saves(options.save)
    claim(saves.values(), options.force)
    wanted = asked(options)
    device, code, info, inputs, extents = wanted.device, wanted.code, wanted.kernel, wanted.inputs, wanted.extents
    for index in saves:
        if index >= len(inputs) or inputs[index].array is None:
            raise UsageError(
                f"--save {index}=...: argument {index} is no buffer of this launch; "
                f"buffers are {_buffers(inputs)}"
            )
    outcome, arrays = execute(device, code.data, info.name, inputs, extents)
    agreements = []
    if options.against_sim and not is_simulated(outcome):
        simulated, expected = execute(simulated_device(options, device.arch), code.data, info.name, inputs, extents)
        exact = all_exact(simulated.fidelity)
        agreements = [
            Agreement.of(f"argument {index}", arrays[index], expected[index], exact) for index in arrays
        ]
    results = [
        Result(index, entry.spec, entry.array, arrays[index], saves.get(index))
        for index, entry in enumerate(inputs)
        if entry.array is not None
    ]
    for result in results:
        if result.path is not None:
            write(result.path, _npy(result.after), options.force)
    if options.json:
        print_json({
            "file": options.file, "target": device.arch, "kernel": info.name,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in extents.items()},
            "resources": info.declared, "buffers": [result.document() for result in results],
            "against_sim": [agreement.document() for agreement in agreements],
            **run_document(outcome),
        })  # fmt: skip
    else:
        show(f"{info.name} of {options.file} on {device.arch}")
        show(table("Resources", ("resource", "value"), info.declared.items()))
        if results:
            columns = ("argument", "spec", "type", "shape", "changed", "min", "max", "saved as")
            show(table("Buffers", columns, (result.row() for result in results), left=2))
        show_run(outcome)
        for agreement in agreements:
            show(agreement.line())
    wrong = has_errors(outcome.findings)
    return 0 if not wrong and all(agreement.agrees for agreement in agreements) else 1


def execute(
    device: Device | hip.Device, code: bytes, name: str, inputs: list[Input], extents: dict[str, Any]
) -> tuple[Any, dict[int, np.ndarray]]:
    """The run, and the arrays of the buffer arguments after it, by argument."""
    before = {index: entry.array for index, entry in enumerate(inputs) if entry.array is not None}
    buffers = {index: device.upload(array) for index, array in before.items()}
    arguments = [buffers.get(index, entry.value) for index, entry in enumerate(inputs)]
    kernel = device.load(code)[name]
    outcome: Any = launched(name, lambda: kernel.launch(args=arguments, **extents))
    after = {index: buffers[index].download(array.dtype, array.shape) for index, array in before.items()}
    return outcome, after


@dataclass(frozen=True)
class Input:
    """An argument before the launch: a buffer's array, or a value."""

    spec: str
    array: np.ndarray | None = None
    value: object = None


@dataclass(frozen=True)
class Result:
    """A buffer argument after the launch."""

    index: int
    spec: str
    before: np.ndarray
    after: np.ndarray
    path: str | None

    def document(self) -> dict[str, Any]:
        """For JSON; min and max leave NaN out, and are None where nothing is left."""
        flat = self.after.reshape(-1)
        same = _raw(self.before) == _raw(flat)
        low = high = None
        if flat.dtype.kind != "V" and flat.size:
            wide = flat.astype(np.float64)
            wide = wide[~np.isnan(wide)]
            low, high = (float(wide.min()), float(wide.max())) if wide.size else (None, None)
        return {
            "argument": self.index, "spec": self.spec, "type": str(flat.dtype),
            "shape": list(self.after.shape),
            "changed": int(np.count_nonzero(~same.all(1))), "min": low, "max": high, "saved": self.path,
        }  # fmt: skip

    def row(self) -> tuple[object, ...]:
        """For a table."""
        shown = self.document()
        shown["shape"] = "x".join(map(str, self.after.shape)) or "scalar"
        return tuple(shown.values())


def _raw(array: np.ndarray) -> np.ndarray:
    """(elements, bytes of an element)."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(array.size, array.itemsize)


def _npy(array: np.ndarray) -> bytes:
    """numpy's file format; a type that it does not know (bf16, fp8) is written as raw elements."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _buffers(inputs: list[Input]) -> str:
    return ", ".join(str(i) for i, entry in enumerate(inputs) if entry.array is not None) or "none"


def argument_maker(rng: np.random.Generator, arch: str) -> Callable[[str], Input]:
    """A function from an --arg to its Input; UsageError says what an argument may be."""

    def make(spec: str) -> Input:
        head, _, rest = spec.partition(":")
        if spec.endswith(".npy"):
            return Input(spec, array=_load(spec))
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


def _load(path: str) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(f"--arg {path}: no array of plain numbers in this file ({error})") from None
    return np.ascontiguousarray(array)


def _scalar(spec: str, kind: np.dtype, text: str) -> np.ndarray | np.generic:
    """A numpy scalar (or 0-d array) of the type, so that its bits reach the kernel as they are."""
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
    """Extents as 64, 64,2,1 or 64x2x1, each at least 1."""
    try:
        extents = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        extents = ()
    if not 1 <= len(extents) <= dimensions or min(extents) < 1:
        raise UsageError(
            f"{option}: {text!r} is no extent: give 1 to {dimensions} whole numbers >= 1, as 64,2,1 or 64x2x1"
        )
    return extents


def parse_saves(specs: list[str]) -> dict[int, str]:
    """--save options as {argument index: path}."""
    saves: dict[int, str] = {}
    for spec in specs:
        index, _, path = spec.partition("=")
        if not index.isdecimal() or not path.endswith(".npy"):
            raise UsageError(f"--save {spec}: give the argument's number from 0 and a file, as 0=out.npy")
        if int(index) in saves:
            raise UsageError(f"--save {spec}: argument {index} is saved twice")
        saves[int(index)] = path
    return saves
