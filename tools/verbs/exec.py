"""`simgpu exec`: any kernel of any code object, simulated or on a GPU, arguments from .npy files or generated, results to .npy."""

from __future__ import annotations

import io
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.tools.cases.file_kernel import Input, add_launch_options, file_kernel
from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import Watch, has_errors, is_simulated, run_document, show_run, simulated_device
from simgpu.tools.shared.outputs import add_force_option, claim, write


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_launch_options(parser, against_sim=True)
    text = "write buffer argument I (from 0) here"
    parser.add_argument("--save", "--out", action="append", default=[], metavar="I=F.NPY", help=text)
    add_force_option(parser)
    add_json_option(parser)


def run(options: Namespace, watch: Watch | None = None) -> int:
    """Launches the kernel; status 1 if it errs or has findings. watch: in checked mode."""
    saves = parse_saves(options.save)
    claim(saves.values(), options.force)
    wanted = file_kernel(options, watch)
    device, info, inputs = wanted.device, wanted.info, wanted.inputs
    for index in saves:
        if index >= len(inputs) or inputs[index].array is None:
            raise UsageError(f"--save {index}=...: argument {index} is no buffer of this launch; buffers are {_buffers(inputs)}")
    outcome, arrays = wanted.execute(device, watch)
    agreements = []
    if options.against_sim and not is_simulated(outcome):
        simulated, expected = wanted.execute(simulated_device(options, device.arch))
        exact = all_exact(simulated.fidelity)
        agreements = [Agreement.of(f"argument {index}", arrays[index], expected[index], exact) for index in arrays]
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
            **{name: list(value) if isinstance(value, tuple) else value for name, value in wanted.extents.items()},
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
