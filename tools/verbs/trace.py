"""`simgpu trace`: the registers of a wave at a place in a running kernel, raw, as numbers, or as a tile."""

from __future__ import annotations

import re
import shlex
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from simgpu.tools.cases.file_kernel import add_argument_options, load_array
from simgpu.tools.cases.operator_options import add_operator_options, names_operator
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.sources import add_compiler_option
from simgpu.tools.cases.subject import Subject, file_subject, one_of, operator_subjects
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.inputs import add_inputs_option
from simgpu.tools.shared.launching import add_limit_options
from simgpu.tools.shared.outputs import claim
from simgpu.tools.shared.parser import Parser

if TYPE_CHECKING:
    from simgpu import Kernel
    from simgpu.debugger.snapshot import Snapshot
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.hardware.isa.instruction import Reg

VIEWS = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "u32": np.uint32}
DEFAULT_TOLERANCE = 1e-5
USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu derive`, and --inputs as `simgpu run` does:
  simgpu trace k.co --at loop --arg zeros:f32:64
  simgpu trace gemm -m 40 -n 36 -k 20 --at 0x40 --show v0
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options and a file's; an operator's follow OP."""
    _own_options(parser)
    _file_options(parser)
    parser.add_argument("what", metavar="FILE|OP", help=f"code object, or an operator: {', '.join(OPERATORS)}")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="further options, in any order")


def _own_options(parser: ArgumentParser) -> None:
    parser.add_argument("--at", metavar="WHERE", help="address (0x1c or NAME+0x1c), label, or source line; required")
    parser.add_argument("--kernel", metavar="K", help="the kernel (default: a file's only one, an operator's first)")
    parser.add_argument("--wave", type=int, default=0, help="the wave in its workgroup (default: 0)")
    parser.add_argument("--group", default="0", metavar="X[,Y[,Z]]", help="the workgroup (default: 0,0,0)")
    parser.add_argument("--skip", type=int, default=0, help="visits of the place to pass over (default: 0)")
    parser.add_argument("--hits", type=int, default=1, help="visits to show (default: 1)")
    look = parser.add_argument_group("what to show")
    look.add_argument("--show", metavar="REGS", help="as v0,v[4:7],a[0:3],s8 (default: those of the instruction)")
    look.add_argument("--view", choices=("raw", *VIEWS), default="f32", help="how to read 32 bits (default: f32)")
    look.add_argument("--lanes", metavar="L[-L]", help="only these lanes (default: all)")
    look.add_argument("--tile", action="append", default=[], metavar="DECLARATION",
                      help="'v[0:3] is D of v_mfma_f32_16x16x4f32 at rows 0, cols 16 [block 0]'")  # fmt: skip
    look.add_argument("--against", metavar="M", help="reference of the tiles: a .npy matrix, or A, B, C of gemm")
    look.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE,
                      help="of the largest reference element (default: 1e-5)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of generated inputs (default: 0)")
    add_limit_options(parser, parser)
    add_html_option(parser)
    add_json_option(parser)


def _file_options(parser: ArgumentParser) -> None:
    file = parser.add_argument_group("FILE", "a code object or assembly; arguments as `simgpu exec` takes them")
    add_argument_options(file)
    add_compiler_option(file)
    file.add_argument("--grid", default="1", metavar="X[,Y[,Z]]", help="workgroups (default: 1)")
    parser.add_argument("--target", help="board or architecture (default: the file's; mi100 for OP)")


def run(options: Namespace) -> int:
    """Prints each visit; status 1 if a tile differs from its reference or the kernel fails."""
    from simgpu.tools.matrix.trace_tile import Declaration, TileComparison

    operator = names_operator(options.what)
    own = Parser(prog=f"simgpu trace {options.what}", add_help=not operator, allow_abbrev=False)
    _own_options(own)
    if not operator:
        _file_options(own)
    options, rest = own.parse_known_args(options.rest, options)
    if options.at is None:
        own.error("the following arguments are required: --at")
    if options.hits < 1 or options.skip < 0:
        raise UsageError(f"--hits {options.hits} --skip {options.skip}: give at least 1 and at least 0")
    claim([options.html], options.force)
    subject = _operator(options, rest) if operator else _file(options, own, rest)
    module = subject.kernel.module
    declarations = [Declaration.parse(text, module.device.arch) for text in options.tile]
    reference = _reference(options, subject)
    chosen = _registers(options.show)
    lanes = _lanes(options.lanes)
    offsets = places(options.at, module.code, subject.kernel.name, subject.source)
    snapshots = _trace(options, subject, offsets)
    compared = [
        [TileComparison.of(declaration, snapshot, reference, options.tolerance) for declaration in declarations]
        for snapshot in snapshots
    ]
    if options.html:
        _save_page(options, subject, snapshots, chosen, lanes)
    if options.json:
        print_json([
            {**_document(snapshot, chosen, options.view, lanes), "tiles": [c.document() for c in tiles]}
            for snapshot, tiles in zip(snapshots, compared, strict=True)
        ])  # fmt: skip
    else:
        for snapshot, tiles in zip(snapshots, compared, strict=True):
            show(*_lines(subject.kernel, snapshot))
            if not tiles or options.show:
                show(*_tables(snapshot, chosen, options.view, lanes))
            for comparison in tiles:
                show(*comparison.parts())
    return 1 if any(c.wrong.any() for tiles in compared for c in tiles) else 0


def _save_page(
    options: Namespace, subject: Subject, snapshots: Sequence[Snapshot], chosen: list[Reg] | None, lanes: range
) -> None:
    """Writes the file of --html: the code, the registers at each visit, and the wave's matrix and LDS instructions."""
    from simgpu.tools.page.launched import launches_document
    from simgpu.tools.page.page import Page
    from simgpu.tools.page.watching import WatchedLaunch

    kernel = subject.kernel
    watched = WatchedLaunch(kernel, subject.call, origins=subject.origins).look(options.wave)
    rows = {offset: row for row, (offset, _, _) in enumerate(watched.rows)}
    watched.stops = [
        {"row": rows.get(one.pc, 0), "text": one.text, "who": _lines(kernel, one)[1].plain,
         "tables": [(sheet.title, sheet.columns, [[cell.plain for cell in row] for row in sheet.rows])
                    for sheet in _tables(one, chosen, options.view, lanes)]}
        for one in snapshots
    ]  # fmt: skip
    note = "nothing was counted: the kernel ran as far as to the last visit; fragments and LDS are those of its first workgroup"
    document = launches_document([watched], subject.folders)
    Page(f"trace of {kernel.title} at {options.at}", document, shlex.join(["simgpu", *options.words]), [note]).save(
        options.html, options.force
    )


def _trace(options: Namespace, subject: Subject, offsets: list[int]) -> list[Snapshot]:
    from simgpu.debugger.snapshot import trace
    from simgpu.hardware.errors import LaunchError, SimError

    try:
        group = tuple(int(part) for part in options.group.split(","))
    except ValueError:
        raise UsageError(f"--group {options.group}: give the workgroup's numbers, as 1,0,0") from None
    try:
        with progress(f"simulating {subject.kernel.title}"):
            found = trace(
                subject.kernel, offsets, **subject.call, group=group, wave=options.wave, hits=options.hits, skip=options.skip
            )
    except LaunchError:
        raise
    except SimError as error:
        raise KernelFailed(f"{type(error).__name__}: {error}") from None
    if not found:
        more = f" more than {options.skip} times" if options.skip else ""
        raise UsageError(
            f"wave {options.wave} of workgroup {options.group} does not come to {options.at}{more}: "
            "see `simgpu disasm`, or choose another --wave or --group"
        )
    return found


def _file(options: Namespace, parser: Parser, rest: list[str]) -> Subject:
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return file_subject(Namespace(**vars(options), file=options.what, global_size=None, device="sim", threads=1))


def _operator(options: Namespace, rest: list[str]) -> Subject:
    """Returns one kernel of an operator; launches those before it."""
    parser = Parser(prog="simgpu trace")
    add_operator_options(parser, more=add_inputs_option)
    before = ["--target", options.target] if options.target else []  # options before OP
    given = parser.parse_args([options.what, *before, *rest])
    limits = {"threads": 1, "max_instructions": options.max_instructions, "timeout": options.timeout, "seed": options.seed}
    return one_of(operator_subjects(Namespace(**{**vars(given), **limits, "kernel": "tree"}), compares=False), options.kernel)


def _reference(options: Namespace, subject: Subject) -> np.ndarray | None:
    """Returns the matrix of --against."""
    name = options.against
    if name is None:
        return None
    if name in subject.matrices:
        return subject.matrices[name]
    if not name.endswith(".npy"):
        known = ", ".join(subject.matrices) or "none here"
        raise UsageError(f"--against {name}: give a .npy file or an operator's matrix ({known})")
    matrix = load_array(name, f"--against {name}")
    if matrix.ndim != 2:
        raise UsageError(f"--against {name}: its array has {matrix.ndim} dimensions, a matrix has 2")
    return matrix.astype(np.float64)


def places(where: str, code: CodeObject, kernel: str, source: str) -> list[int]:
    """Returns code offsets, from the first instruction, that a PC, a label or a source line names."""
    from simgpu.debugger.code import offsets
    from simgpu.hardware.errors import LaunchError

    try:
        return offsets(where, code, kernel, source)
    except LaunchError as error:
        raise UsageError(f"--at {error}") from None


def _registers(text: str | None) -> list[Reg] | None:
    from simgpu.tools.matrix.trace_tile import register

    return None if text is None else [register(part) for part in text.split(",")]


def _lanes(text: str | None) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text or "0-63")
    lanes = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not lanes or lanes[-1] > 63:
        raise UsageError(f"--lanes {text}: give a lane or a range within 0-63")
    return lanes


def _choose_registers(snapshot: Snapshot, chosen: list[Reg] | None) -> list[Reg]:
    """Returns the chosen registers, or the instruction's own."""
    from simgpu.hardware.isa.instruction import Reg

    if chosen is not None:
        return chosen
    own = [operand for operand in snapshot.instruction.args.values() if isinstance(operand, Reg)]
    return list(dict.fromkeys(own))


def _lines(kernel: Kernel, snapshot: Snapshot) -> list[Text]:
    place = kernel.module.code.address_name(kernel.info, kernel.info.start + snapshot.pc)
    at = f" at {snapshot.line}" if snapshot.line else ""
    who = f"workgroup {','.join(map(str, snapshot.group))}, wave {snapshot.wave}, visit {snapshot.hit}"
    return [
        Text(f"before {place}  {snapshot.text}{at}", "bold"),
        Text(f"{who}; exec {snapshot.exec:#018x}, vcc {snapshot.vcc:#018x}, scc {snapshot.scc}"),
    ]


def _names(reg: Reg) -> list[str]:
    return [f"{reg.file}{reg.index + i}" for i in range(reg.count)]


def _tables(snapshot: Snapshot, chosen: list[Reg] | None, view: str, lanes: range) -> list[Any]:
    from simgpu.hardware.isa.code.operands import register_text

    parts: list[Any] = []
    scalar = [reg for reg in _choose_registers(snapshot, chosen) if reg.file == "s"]
    if scalar:
        rows = [
            (register_text(reg[i]), f"{int(value):#010x}", int(value.view(np.int32)), float(value.view(np.float32)))
            for reg in scalar
            for i, value in enumerate(snapshot.registers(reg))
        ]
        parts.append(table("Scalar registers", ("register", "raw", "i32", "f32"), rows))
    for reg in _choose_registers(snapshot, chosen):
        if reg.file == "s":
            continue
        values = _view(snapshot.registers(reg), view)
        body = [
            (str(lane) if snapshot.exec >> lane & 1 else f"({lane})", *(Text(v) for v in values[:, lane]))
            for lane in lanes
        ]
        parts.append(table(f"{register_text(reg)} by lane; (lane): not in exec", ("lane", *_names(reg)), body, left=0))
    return parts


def _view(registers: np.ndarray, view: str) -> np.ndarray:
    """Returns cells of text: (registers, 64)."""
    if view == "raw":
        return np.array([[f"{value:08x}" for value in row] for row in registers])
    if view == "f16":
        halves = registers.copy().view(np.float16).reshape(len(registers), 64, 2)
        return np.array([[f"{low:.5g} {high:.5g}" for low, high in row] for row in halves])
    kind = VIEWS[view]
    form = "{:.7g}" if view == "f32" else "{}"
    return np.array([[form.format(value) for value in row] for row in registers.view(kind)])


def _document(snapshot: Snapshot, chosen: list[Reg] | None, view: str, lanes: range) -> dict[str, Any]:
    def values(reg: Reg) -> list[Any]:
        raw = snapshot.registers(reg)
        if reg.file == "s":
            return [int(v) for v in raw]
        if view == "raw":
            return [[int(row[lane]) for lane in lanes] for row in raw]
        if view == "f16":
            return [[row.copy().view(np.float16).reshape(64, 2)[lane].tolist() for lane in lanes] for row in raw]
        return [[row.view(VIEWS[view])[lane].item() for lane in lanes] for row in raw]

    from simgpu.hardware.isa.code.operands import register_text

    return {
        "pc": snapshot.pc, "text": snapshot.text, "line": snapshot.line, "group": list(snapshot.group),
        "wave": snapshot.wave, "visit": snapshot.hit, "exec": snapshot.exec, "vcc": snapshot.vcc, "scc": snapshot.scc,
        "lanes": list(lanes), "view": view,
        "registers": {register_text(reg): values(reg) for reg in _choose_registers(snapshot, chosen)},
    }  # fmt: skip
