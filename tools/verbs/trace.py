"""`simgpu trace`: the registers of a wave at a place in a running kernel, raw, as numbers, or as a tile."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.gemm_options import OPERATORS, finite_number

if TYPE_CHECKING:
    from simgpu import Device, Kernel
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.hardware.isa.instruction import Reg
    from simgpu.trace import Snapshot

VIEWS = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "u32": np.uint32}
DEFAULT_TOLERANCE = 1e-5


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("what", metavar="FILE|OP", help=f"code object, or an operator: {', '.join(OPERATORS)}")
    parser.add_argument("--at", required=True, metavar="WHERE", help="PC (0x1c, from the entry), label, or source line")
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
    file = parser.add_argument_group("FILE", "a code object; arguments as `simgpu exec` takes them")
    file.add_argument("--kernel", metavar="K", help="the kernel (default: the only one)")
    file.add_argument("--arg", action="append", default=[], metavar="SPEC", help="an argument, in order")
    file.add_argument("--grid", metavar="X[,Y[,Z]]", help="workgroups (default: 1)")
    file.add_argument("--block", metavar="X[,Y[,Z]]", help="work-items a workgroup (default: the kernel's, or 64)")
    file.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="LDS beyond the kernel's own")
    parser.add_argument("--target", help="board or architecture (default: the file's; mi100 for OP)")
    parser.add_argument("--seed", type=int, default=0, help="seed of generated inputs (default: 0)")
    parser.add_argument("--max-instructions", type=int, help="the launch's budget in wave-instructions")
    gemm = parser.add_argument_group("gemm", "as `simgpu run gemm`")
    for name in "mnk":
        gemm.add_argument(f"-{name}", type=int, metavar=name.upper(), help=f"extent {name}")
    gemm.add_argument("--policy", default="corrected", help="tile policy (default: corrected)")
    gemm.add_argument("--dtype", default="f32", help="type of A and B (default: f32)")
    gemm.add_argument("--trans-a", action="store_true", help="A is stored transposed, (k,m)")
    gemm.add_argument("--trans-b", action="store_true", help="B is stored transposed, (n,k)")
    gemm.add_argument("--alpha", type=finite_number, default=1.0, help="factor of the product (default: 1)")
    gemm.add_argument("--beta", type=finite_number, default=0.0, help="factor of C (default: 0)")
    for name in ("lda", "ldb", "ldc"):
        gemm.add_argument(f"--{name}", type=int, help=f"row stride of {name[2].upper()}")
    add_json_option(parser)


@dataclass(frozen=True)
class Subject:
    """A kernel ready to launch; source: its assembly where known; references: matrices by name."""

    device: Device
    kernel: Kernel
    code: CodeObject
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_lds: int
    args: list[object]
    source: str
    references: dict[str, np.ndarray]


def run(options: Namespace) -> int:
    """Prints each visit; status 1 if a tile differs from its reference or the kernel fails."""
    from simgpu.tools.matrix.trace_tile import Comparison, Declaration

    if options.hits < 1 or options.skip < 0:
        raise UsageError(f"--hits {options.hits} --skip {options.skip}: give at least 1 and at least 0")
    subject = _operator(options) if options.what in OPERATORS else _file(options)
    target = subject.device.arch
    declarations = [Declaration.parse(text, target) for text in options.tile]
    reference = _reference(options, subject)
    chosen = _registers(options.show)
    lanes = _lanes(options.lanes)
    offsets = places(options.at, subject.code, subject.kernel.name, subject.source)
    snapshots = _traced(options, subject, offsets)
    compared = [
        [Comparison.of(declaration, snapshot, reference, options.tolerance) for declaration in declarations]
        for snapshot in snapshots
    ]
    if options.json:
        print_json([
            {**_document(snapshot, chosen, options.view, lanes), "tiles": [c.document() for c in tiles]}
            for snapshot, tiles in zip(snapshots, compared, strict=True)
        ])  # fmt: skip
    else:
        for snapshot, tiles in zip(snapshots, compared, strict=True):
            show(*_lines(snapshot))
            if not tiles or options.show:
                show(*_tables(snapshot, chosen, options.view, lanes))
            for comparison in tiles:
                show(*comparison.parts())
    return 1 if any(c.wrong.any() for tiles in compared for c in tiles) else 0


def _traced(options: Namespace, subject: Subject, offsets: list[int]) -> list[Snapshot]:
    from simgpu.hardware.errors import LaunchError, SimError
    from simgpu.trace import trace

    try:
        group = tuple(int(part) for part in options.group.split(","))
    except ValueError:
        raise UsageError(f"--group {options.group}: give the workgroup's numbers, as 1,0,0") from None
    try:
        with progress(f"simulating {subject.kernel.name}"):
            found = trace(
                subject.kernel, offsets, grid=subject.grid, block=subject.block, args=subject.args,
                dynamic_lds=subject.dynamic_lds, group=group, wave=options.wave,
                hits=options.hits, skip=options.skip,
            )  # fmt: skip
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


def _device(options: Namespace, target: str) -> Device:
    from simgpu import Device

    return Device(target, threads=1, max_instructions=options.max_instructions)


def _file(options: Namespace) -> Subject:
    from simgpu.tools.verbs.disasm import kernel_named, read_code_object
    from simgpu.tools.verbs.exec import argument_maker, parse_extents

    code = read_code_object(options.what, options.target)
    info = code.kernels[kernel_named(code.kernels, options.kernel)]
    device = _device(options, options.target or code.target)
    make = argument_maker(np.random.default_rng(options.seed), device.arch)
    inputs = [make(spec) for spec in options.arg]
    args = [entry.value if entry.array is None else device.upload(entry.array) for entry in inputs]
    block = parse_extents("--block", options.block) if options.block else info.required_workgroup_size or (64,)
    grid = parse_extents("--grid", options.grid) if options.grid else (1,)
    kernel = device.load(code.data)[info.name]
    return Subject(device, kernel, code, grid, tuple(block), options.dynamic_lds, args, "", {})


def _operator(options: Namespace) -> Subject:
    from simgpu import asm
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.tools.shared.gemm_options import tree_of
    from simgpu.tools.verbs.run import Operands

    missing = [f"-{name}" for name in "mnk" if getattr(options, name) is None]
    if missing:
        raise UsageError(f"gemm needs {', '.join(missing)}")
    options.target = options.target or "mi100"
    tree = tree_of(options)
    emitted = asm.emit(tree)
    device = _device(options, options.target)
    operands = Operands.random(tree.problem, device.arch, options.seed)
    named = {name: device.upload(flat) for name, flat in zip(emitted.operands, operands.flat, strict=True)}
    named |= {name: device.alloc(nbytes) for name, nbytes in emitted.scratch}
    code = emitted.assemble()
    a, b = (operands.matrix(i).astype(np.float64) for i in (0, 1))
    a, b = a.T if options.trans_a else a, b.T if options.trans_b else b
    return Subject(
        device, device.load(code)[emitted.name], CodeObject.parse(code), emitted.grid, emitted.block, 0,
        emitted.bind(named), emitted.source, {"A": a, "B": b, "C": a @ b},
    )  # fmt: skip


def _reference(options: Namespace, subject: Subject) -> np.ndarray | None:
    """The matrix of --against; gemm's C is A·B, what the accumulators hold before alpha and beta."""
    name = options.against
    if name is None:
        return None
    if name in subject.references:
        return subject.references[name]
    if not name.endswith(".npy"):
        known = ", ".join(subject.references) or "none here"
        raise UsageError(f"--against {name}: give a .npy file or an operator's matrix ({known})")
    from simgpu.tools.verbs.exec import _load

    matrix = _load(name)
    if matrix.ndim != 2:
        raise UsageError(f"--against {name}: its array has {matrix.ndim} dimensions, a matrix has 2")
    return matrix.astype(np.float64)


def places(where: str, code: CodeObject, kernel: str, source: str) -> list[int]:
    """Code offsets, from the first instruction, that a PC, a label or a source line names.

    A label of the source (local ones are not in the file) counts as its next line with code.
    """
    info = code.kernels[kernel]
    lines: dict[int, int] = {}
    for offset in range(0, info.code_size, 4):
        line = code.source_line(info.start + offset)
        if line is not None:
            lines.setdefault(int(line.rpartition(":")[2]), offset)
    if re.fullmatch(r"\+?0x[0-9a-fA-F]+", where):
        offset = int(where.lstrip("+"), 16)
        if offset % 4 or offset >= info.code_size:
            raise UsageError(f"--at {where}: {kernel} has {info.code_size:#x} bytes of code, a place is a multiple of 4")
        return [offset]
    number = re.fullmatch(r"(?:.*:)?(\d+)", where)
    if number:
        if int(number[1]) not in lines:
            said = f"its lines are {min(lines)} to {max(lines)}" if lines else "the file has no line table"
            raise UsageError(f"--at {where}: no instruction of {kernel} comes from that line; {said}")
        return [lines[int(number[1])]]
    symbol = code.symbols.get(where)
    if symbol is not None and info.start <= symbol.address < info.start + info.code_size:
        return [symbol.address - info.start]
    for at, text in enumerate(source.splitlines(), 1):
        if text.split(";")[0].strip() in (f"{where}:", f".L{where}:"):
            after = [line for line in sorted(lines) if line > at]
            if after:
                return [lines[after[0]]]
    labels = re.findall(r"^(\S+):$", source.partition(".rodata")[0], re.MULTILINE) or [
        name for name, s in code.symbols.items() if info.start <= s.address < info.start + info.code_size
    ]
    raise UsageError(f"--at {where}: no such label; there are {', '.join(labels)}; or give 0x… or a source line")


def _registers(text: str | None) -> list[Reg] | None:
    from simgpu.tools.matrix.trace_tile import register

    return None if text is None else [register(part) for part in text.split(",")]


def _lanes(text: str | None) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text or "0-63")
    lanes = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not lanes or lanes[-1] > 63:
        raise UsageError(f"--lanes {text}: give a lane or a range within 0-63")
    return lanes


def _chosen(snapshot: Snapshot, chosen: list[Reg] | None) -> list[Reg]:
    """The registers asked for, or the instruction's own."""
    from simgpu.hardware.isa.instruction import Reg

    if chosen is not None:
        return chosen
    own = [operand for operand in snapshot.instruction.args.values() if isinstance(operand, Reg)]
    return list(dict.fromkeys(own))


def _lines(snapshot: Snapshot) -> list[Text]:
    at = f" at {snapshot.line}" if snapshot.line else ""
    who = f"workgroup {','.join(map(str, snapshot.group))}, wave {snapshot.wave}, visit {snapshot.hit}"
    return [
        Text(f"before +{snapshot.pc:#x}  {snapshot.text}{at}", "bold"),
        Text(f"{who}; exec {snapshot.exec:#018x}, vcc {snapshot.vcc:#018x}, scc {snapshot.scc}"),
    ]


def _names(reg: Reg) -> list[str]:
    return [f"{reg.file}{reg.index + i}" for i in range(reg.count)]


def _tables(snapshot: Snapshot, chosen: list[Reg] | None, view: str, lanes: range) -> list[Any]:
    from simgpu.hardware.isa.code.operands import register_text

    parts: list[Any] = []
    scalar = [reg for reg in _chosen(snapshot, chosen) if reg.file == "s"]
    if scalar:
        rows = [
            (register_text(reg[i]), f"{int(value):#010x}", int(value.view(np.int32)), float(value.view(np.float32)))
            for reg in scalar
            for i, value in enumerate(snapshot.registers(reg))
        ]
        parts.append(table("Scalar registers", ("register", "raw", "i32", "f32"), rows))
    for reg in _chosen(snapshot, chosen):
        if reg.file == "s":
            continue
        values = _viewed(snapshot.registers(reg), view)
        body = [
            (str(lane) if snapshot.exec >> lane & 1 else f"({lane})", *(Text(v) for v in values[:, lane]))
            for lane in lanes
        ]
        parts.append(table(f"{register_text(reg)} by lane; (lane): not in exec", ("lane", *_names(reg)), body, left=0))
    return parts


def _viewed(registers: np.ndarray, view: str) -> np.ndarray:
    """Cells of text: (registers, 64)."""
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
        "registers": {register_text(reg): values(reg) for reg in _chosen(snapshot, chosen)},
    }  # fmt: skip
