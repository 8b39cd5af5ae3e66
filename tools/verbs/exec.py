"""`simgpu exec`: any kernel of any code object, simulated or on a GPU, arguments from .npy files or generated, results to .npy."""

from __future__ import annotations

import io
import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from simgpu.tools.cases.file_kernel import FileKernel, Input, add_launch_options, load_array
from simgpu.tools.cases.results import BufferResult, Expectation
from simgpu.tools.cases.subject import file_launch
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import (
    Watch,
    add_ring_option,
    has_errors,
    is_simulated,
    run_document,
    show_run,
    simulated_device,
    with_seed,
)
from simgpu.tools.shared.outputs import claim, write
from simgpu.tools.shared.seeds import SeedSearch, add_seed_options, demand_plain, search, searched_seeds, show_search


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_launch_options(parser, against_sim=True)
    text = "write buffer argument I (from 0) here"
    parser.add_argument("--save", "--out", action="append", default=[], metavar="I=F.NPY", help=text)
    text = "compare buffer argument I with this array after the launch"
    parser.add_argument("--expect", action="append", default=[], metavar="I=F.NPY", help=text)
    text = "of --expect, relative to its largest element (default: the square root of the type's epsilon; 0 for integers)"
    parser.add_argument("--tolerance", type=_tolerance, help=text)
    add_seed_options(parser)
    add_ring_option(parser)
    add_html_option(parser, against=True)
    add_json_option(parser)


def run(options: Namespace, watch: Watch | None = None) -> int:
    """Launches the kernel; status 1 if a finding is an error or a result is not as expected. watch: for checked mode."""
    if options.against and not options.html:
        raise UsageError("--against goes with --html FILE")
    demand_plain(options, ("html", "against_sim"))
    if options.html is None:
        return _run(options, watch)
    from simgpu.tools.page.launch_page import LaunchPage

    with LaunchPage(options, watch) as page:
        page.title, page.folders = Path(options.file).name, [Path(options.file).parent]
        return _run(options, page.watch)


def _run(options: Namespace, watch: Watch | None) -> int:
    saves, expected_files = numbered_files("--save", options.save), numbered_files("--expect", options.expect)
    wanted_arrays = {index: load_array(path, f"--expect {index}={path}") for index, path in expected_files.items()}
    claim(saves.values(), options.force)
    wanted = file_launch(options, watch)
    device, info, inputs = wanted.device, wanted.info, wanted.inputs
    for option, files in (("--save", saves), ("--expect", expected_files)):
        for index in files:
            if index >= len(inputs) or inputs[index].array is None:
                raise UsageError(f"{option} {index}=...: argument {index} is no buffer; buffers are {_buffers(inputs)}")
    searched = _search(options, wanted, wanted_arrays)
    if searched is not None and searched.found is not None:
        device = with_seed(options, device.arch, searched.found)
    outcome, arrays = wanted.execute(device, watch)
    agreements = []
    if options.against_sim and not is_simulated(outcome):
        simulated, expected = wanted.execute(simulated_device(options, device.arch))
        exact = all_exact(simulated.fidelity)
        agreements = [Agreement.of(f"argument {index}", arrays[index], expected[index], exact) for index in arrays]
    expectations = [
        Expectation.of(index, expected_files[index], *_comparable(arrays[index], want, options), options.tolerance)
        for index, want in wanted_arrays.items()
    ]
    results = [
        BufferResult(index, entry.spec, entry.array, arrays[index], saves.get(index))
        for index, entry in enumerate(inputs)
        if entry.array is not None
    ]
    if watch is not None:
        watch.unusual += [text for result in results if (text := result.nonfinite_note)]
    for result in results:
        if result.path is not None:
            write(result.path, _npy(result.after), options.force)
    if options.json:
        print_json({
            "file": options.file, "target": device.arch, "kernel": info.name,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in wanted.extents.items()},
            "resources": info.declared_resources, "buffers": [result.document() for result in results],
            "against_sim": [agreement.document() for agreement in agreements],
            "expected": [asdict(expectation) for expectation in expectations],
            **(searched.document() if searched else {}),
            **run_document(outcome),
        })  # fmt: skip
    else:
        show(f"{info.title} of {options.file} on {device.arch}")
        show(table("Resources", ("resource", "value"), info.declared_resources.items()))
        if results:
            shown = [result.document() for result in results]
            unusual = [name for name in ("nan", "infinite") if any(row[name] for row in shown)]
            columns = ("argument", "spec", "type", "shape", "changed", "min", "max", *unusual, "saved")
            show(table("Buffers", columns, ([_cell(row[name]) for name in columns] for row in shown), left=2))
        show_run(outcome)
        for agreement in agreements:
            show(agreement.line())
        for expectation in expectations:
            show(expectation.line())
    wrong = has_errors(outcome.findings) or any(expectation.differing for expectation in expectations)
    wrong |= searched is not None and searched.found is not None
    return 0 if not wrong and all(agreement.agrees for agreement in agreements) else 1


def _search(options: Namespace, wanted: FileKernel, expected: Mapping[int, np.ndarray]) -> SeedSearch | None:
    """Searches the range of --weak or --late for a seed whose arrays are not as expected or, without expected arrays, not those of
    the plain launch. Returns None without a range."""
    if searched_seeds(options) is None:
        return None
    plain: dict[int, np.ndarray] = {} if expected else wanted.execute(wanted.device)[1]

    def differs(seed: int) -> str:
        _, arrays = wanted.execute(with_seed(options, wanted.device.arch, seed))
        for index, want in expected.items():
            off = Expectation.of(index, "", arrays[index], want, options.tolerance).differing
            if off:
                return f"{off:,} of {want.size:,} elements of argument {index} are not as expected"
        for index, want in plain.items():
            off = Agreement.of("", arrays[index], want, False).different
            if off:
                return f"{off:,} of {want.size:,} elements of argument {index} differ from the plain launch's"
        return ""

    found = search(options, differs)
    if not options.json:
        show_search(found)
    return found


def _comparable(got: np.ndarray, want: np.ndarray, options: Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Returns the arrays that --expect compares: with --ring their bits, since elements are near no others."""
    if not getattr(options, "ring", False) or got.dtype != want.dtype:
        return got, want
    from simgpu.hardware.isa.ring.arrays import words

    return words(got), words(want)


def _tolerance(text: str) -> float:
    """Parses a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of at least 0")
    return value


def _cell(value: object) -> object:
    """Formats an entry of a result's document for a table."""
    return ("x".join(map(str, value)) or "scalar") if isinstance(value, list) else value


def _npy(array: np.ndarray) -> bytes:
    """Returns numpy's file format; elements of a type unknown to numpy (bf16, fp8) are raw."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _buffers(inputs: list[Input]) -> str:
    return ", ".join(str(i) for i, entry in enumerate(inputs) if entry.array is not None) or "none"


def numbered_files(option: str, specs: list[str]) -> dict[int, str]:
    """Parses --save or --expect options into {argument index: path}."""
    files: dict[int, str] = {}
    for spec in specs:
        index, _, path = spec.partition("=")
        if not index.isdecimal() or not path.endswith(".npy"):
            raise UsageError(f"{option} {spec}: give the argument's number from 0 and a file, as 0=out.npy")
        if int(index) in files:
            raise UsageError(f"{option} {spec}: argument {index} is named twice")
        files[int(index)] = path
    return files
