"""`simgpu layout`: lane and register of each element of a matrix instruction, probed and chained."""

from __future__ import annotations

import csv
import io
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from simgpu.hardware.errors import TargetError
from simgpu.hardware.matrix_table import FORMATS
from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from simgpu.hardware.mfma.chain import Chain, chain
from simgpu.tools.matrix.fragments import Fragment, describe_instruction, formula, instruction_document
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.outputs import claim, write

MODIFIERS = ("cbsz", "abid", "blgp")


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("mnemonic", metavar="MNEMONIC", nargs="?", help="a matrix instruction, as clang takes it")
    parser.add_argument("--target", default="gfx942", help="board or architecture (default: gfx942)")
    what = parser.add_argument_group("what to show instead of the whole table")
    what.add_argument("--list", action="store_true", help="every matrix instruction of the target")
    what.add_argument("--operand", metavar="X", help="only A, B, C, D, IDX, SCALE_A or SCALE_B (default: A, B and D)")
    what.add_argument("--lane", type=int, metavar="L", help="only the elements of this lane")
    what.add_argument("--register", type=int, metavar="R", help="only this register of the operand")
    what.add_argument("--element", metavar="I,J[,BLOCK]", help="the lane and register of this element")
    what.add_argument("--probe", action="store_true", help="run Q[i,:]=i, K=I in the simulator and compare")
    what.add_argument(
        "--chain", nargs=2, metavar=("FIRST", "SECOND"), help="can D of FIRST be A or B of SECOND unchanged?"
    )
    modifiers = parser.add_argument_group("modifiers")
    modifiers.add_argument("--cbsz", type=int, default=0, help="A: 2^cbsz blocks share one; f8f6f4: the format of A")
    modifiers.add_argument("--abid", type=int, default=0, help="A: which block they share; smfmac: the index set")
    modifiers.add_argument("--blgp", type=int, default=0, help="B: the lane pattern; f8f6f4: the format of B")
    output = parser.add_argument_group("output")
    output.add_argument("--csv", action="store_true", help="operand,register,lane,bit,row,column,block")
    output.add_argument("--svg", metavar="FILE", help="draw the matrices with their owners")
    add_html_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the chosen tables; status 1 if the probe finds another layout than the table's."""
    if options.csv and options.json:
        raise UsageError("--csv and --json: choose one")
    if options.list:
        return _list(options)
    if options.chain:
        return _chain(options)
    if not options.mnemonic:
        raise UsageError("name a matrix instruction, or use --list to see those of the target")
    row = find(options.mnemonic, options.target)
    modifiers = {name: getattr(options, name) for name in MODIFIERS}
    if row.flexible:
        row, modifiers = _with_formats(row, options)
    if options.probe:
        return _probe(row, modifiers, options)
    fragments = [Fragment.of(row, name, modifiers) for name in _operands(row, options)]
    if options.svg:
        from simgpu.tools.matrix.fragment_svg import draw

        claim((options.svg,), options.force)
        write(options.svg, draw(fragments).encode(), options.force)
    if options.html:
        _page(f"{row.mnemonic} on {row.target}", [(row, modifiers)], options)
    if options.element:
        return _element(row, fragments, options)
    _limits(row, fragments, options)
    chosen = [_filter(fragment.documents(), options) for fragment in fragments]
    if options.json:
        print_json({
            **instruction_document(row),
            "applied": {name: value for name, value in modifiers.items() if value},
            "operands": {
                f.operand: {"registers": f.registers, "width": row.width(f.operand), "verified": row.is_verified(f.operand),
                            "doubt": row.doubt(f.operand), "formula": formula(row, f.operand), "elements": records}
                for f, records in zip(fragments, chosen, strict=True)
            },
        })  # fmt: skip
    elif options.csv:
        print(_csv([record for records in chosen for record in records]), end="")
    elif not options.svg and not options.html:
        _show(row, fragments, modifiers, options)
    return 0


def _page(
    title: str, rows: list[tuple[MatrixInstruction, dict[str, int]]], options: Namespace, links: Sequence[Chain] = ()
) -> None:
    """Writes the page of matrix instructions, each under modifiers."""
    from simgpu.tools.page.fragments import chain_document, instruction
    from simgpu.tools.page.page import Page

    claim((options.html,), options.force)
    names = [options.operand.upper()] if options.operand and not links else []
    document: dict[str, Any] = {"fragments": [instruction(row, modifiers, names) for row, modifiers in rows]}
    if links:
        document["chains"] = [chain_document(link) for link in links]
    Page(title, document, shlex.join(["simgpu", *options.words])).save(options.html, options.force)


def _with_formats(row: MatrixInstruction, options: Namespace) -> tuple[MatrixInstruction, dict[str, int]]:
    """Returns the f8f6f4 row with the formats of the mnemonic's suffix or of --cbsz and --blgp."""
    if options.abid:
        raise TargetError(f"{row.mnemonic} takes no abid")
    if row.a_type == "f8f6f4":
        return row.with_formats(options.cbsz, options.blgp), dict.fromkeys(MODIFIERS, 0)
    if options.cbsz or options.blgp:
        raise TargetError(f"{options.mnemonic} names its formats already: leave --cbsz and --blgp out")
    return row, dict.fromkeys(MODIFIERS, 0)


def _operands(row: MatrixInstruction, options: Namespace) -> list[str]:
    if options.operand:
        return [options.operand.upper()]
    return ["A", "B"] + ["IDX"] * row.sparse + ["SCALE_A", "SCALE_B"] * row.scaled + ["D"]


def _filter(records: list[dict[str, Any]], options: Namespace) -> list[dict[str, Any]]:
    return [
        record
        for record in records
        if options.lane in (None, record["lane"]) and options.register in (None, record["register"])
    ]


def _limits(row: MatrixInstruction, fragments: list[Fragment], options: Namespace) -> None:
    """Raises TargetError for a lane or register that none of the operands has."""
    most = max(fragment.registers for fragment in fragments)
    for name, value, limit in (("lane", options.lane, 64), ("register", options.register, most)):
        if value is not None and not 0 <= value < limit:
            who = ", ".join(fragment.operand for fragment in fragments)
            raise TargetError(f"{row.mnemonic}: {who}: no {name} {value}; it must be 0 to {limit - 1}")


def _csv(records: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ("operand", "register", "lane", "bit", "row", "column", "block"), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _show(
    row: MatrixInstruction, fragments: list[Fragment], modifiers: dict[str, int], options: Namespace
) -> None:
    show(*describe_instruction(row))
    applied = ", ".join(f"{name}:{value}" for name, value in modifiers.items() if value)
    if applied:
        show(f"with {applied}: the tables show what is read from each place")
    for fragment in fragments:
        show(formula(row, fragment.operand))
    for fragment in fragments:
        lanes = range(64) if options.lane is None else [options.lane]
        registers = None
        if options.register is not None:
            registers = [options.register] if options.register < fragment.registers else []
        show(*fragment.table(lanes, registers))


def _element(row: MatrixInstruction, fragments: list[Fragment], options: Namespace) -> int:
    """Prints the place of an element, in every operand that has it."""
    try:
        numbers = tuple(int(part) for part in options.element.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (2, 3):
        raise UsageError(f"--element {options.element}: give row,column or row,column,block")
    i, j, block = (*numbers, 0)[:3]
    found = []
    for fragment in fragments:
        place = fragment.owner((i, j, block))
        if place is not None:
            found.append((fragment, place))
    if not found:
        shapes = ", ".join(f"{f.operand} {f.shape}" for f in fragments)
        raise TargetError(f"{row.mnemonic}: no operand has element {i},{j} of block {block}: {shapes}, {row.blocks} blocks")
    if options.json:
        names = ("register", "lane", "bit")
        print_json({
            **instruction_document(row),
            "element": {"row": i, "column": j, "block": block},
            "places": {f.operand: dict(zip(names, place, strict=True)) for f, place in found},
        })  # fmt: skip
        return 0
    if options.csv:
        records = [
            {"operand": f.operand, "register": r, "lane": lane, "bit": bit, "row": i, "column": j, "block": block}
            for f, (r, lane, bit) in found
        ]
        print(_csv(records), end="")
        return 0
    of_block = f" of block {block}" if row.blocks > 1 else ""
    for fragment, (register, lane, bit) in found:
        width = row.width(fragment.operand) // (2 if fragment.operand == "A" and row.sparse else 1)
        what = f"registers {register} and {register + 1}" if width == 64 else f"register {register}"
        bits = "" if width >= 32 else f", bits {bit} to {bit + width - 1}"
        show(f"{fragment.operand}[{i},{j}]{of_block}: lane {lane}, {what}{bits}")
    return 0


def _list(options: Namespace) -> int:
    rows = instructions(options.target)
    if options.json:
        print_json([instruction_document(row) for row in rows])
        return 0
    names = (
        "mnemonic", "m", "n", "k", "blocks", "A", "B", "D", "passes", "FLOP/clock/CU", "modifiers", "layout", "arithmetic",
    )  # fmt: skip
    lines = [
        (
            row.mnemonic, row.m, row.n, row.k, row.blocks, row.a_type, row.b_type, row.cd_type, row.passes,
            4 * 2 * row.m * row.n * row.k * row.blocks // (4 * row.passes),
            " ".join(sorted(row.modifiers)),
            "verified" if row.is_verified("A") and row.is_verified("B") else "unverified",
            row.fidelity(),
        )
        for row in rows
    ]  # fmt: skip
    if options.csv:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([names, *lines])
        print(out.getvalue(), end="")
        return 0
    show(table(f"{len(rows)} matrix instructions of {rows[0].target}", names, lines))
    if any(row.flexible for row in rows):
        formats = ", ".join(f"{i} {name}" for i, name in enumerate(FORMATS))
        show(f"\nf8f6f4: cbsz and blgp name the formats of A and B: {formats}")
    return 0


def _probe(row: MatrixInstruction, modifiers: dict[str, int], options: Namespace) -> int:
    from simgpu import Device
    from simgpu.tools.matrix.structured_test import probe, probe_document, probe_lines

    if any(modifiers.values()):
        raise UsageError("--probe runs the instruction without modifiers: leave --cbsz, --abid and --blgp out")
    result = probe(row, Device(row.target, threads=1))
    if options.json:
        print_json({**instruction_document(row), **probe_document(result)})
    else:
        show(*describe_instruction(row)[:1])
        show(*probe_lines(result))
    return 0 if result.agrees else 1


def _chain(options: Namespace) -> int:
    first, second = (find(name, options.target) for name in options.chain)
    wanted = [options.operand.upper()] if options.operand else ["A", "B"]
    links = [chain(first, second, operand) for operand in wanted]
    if options.html:
        plain = dict.fromkeys(MODIFIERS, 0)
        _page(f"D of {first.mnemonic} into {second.mnemonic}", [(first, plain), (second, plain)], options, links)
    if options.json:
        print_json({
            "first": first.mnemonic, "second": second.mnemonic, "target": first.target,
            "operands": {link.operand: _chain_document(link) for link in links},
        })  # fmt: skip
        return 0
    show(f"D of {first.mnemonic} as an operand of {second.mnemonic}, {first.target}")
    for link in links:
        show("", *_chain_lines(link))
    return 0


def _chain_rows(link: Chain) -> list[list[int]]:
    """Returns rows of D by step and k, of the first block."""
    return [[link.row(step, k) for k in range(link.second.k)] for step in range(link.steps)]


def _chain_document(link: Chain) -> dict[str, Any]:
    return {
        "free": link.free,
        "reason": link.reason,
        "moves": [{"lane_bit": m.bit, "held": m.held, "wanted": m.wanted, "instruction": m.instruction} for m in link.moves],
        "formula": link.formula() if link.free else None,
        "natural": link.natural if link.free else None,
        "steps": link.steps, "tiles": link.tiles,
        "rows": _chain_rows(link) if link.free else None,
        "partial_sums": [list(part) for part in link.parts] if link.free and link.row_blocks else None,
        "conversion": link.conversion(),
    }  # fmt: skip


def _chain_lines(link: Chain) -> list[str]:
    other = "B" if link.operand == "A" else "A"
    use = "A = transpose of D: (D^T) B" if link.operand == "A" else "B = D: A D"
    if link.reason:
        return [f"{use}: no. {link.reason}."]
    convert = [f"  Each lane converts its own registers: {link.conversion()}."] if link.conversion() else []
    if link.moves:
        return [
            f"{use}: not as it is. {len(link.moves)} lane bit(s) must change places with register bits:",
            *(f"  {move}" for move in link.moves),
            "  (or write D to LDS and read it back)",
            *convert,
        ]
    lines = [
        f"{use}: yes, no data moves.",
        f"  Step s, element e of a lane's operand is its register r of D; {link.formula()}.",
        f"  {link.steps} step(s) use up {link.tiles} tile(s) of D ({link.first.m} rows each)"
        + (", for each block of D its own registers." if link.first.blocks > 1 and link.rows < link.first.registers("D") else "."),
    ]  # fmt: skip
    if link.natural:
        lines.append(f"  The order is natural: load {other} as usual.")
    else:
        lines.append(f"  Load {other} with its k renamed: k = 0, 1, ... of each step is this row of D:")
        lines += [f"    s = {step}: {_shorten(rows)}" for step, rows in enumerate(_chain_rows(link)[:8])]
        lines += [f"    ... {link.steps} steps"] if link.steps > 8 else []
    if link.row_blocks:
        sums = "; ".join(" + ".join(str(block) for block in part) for part in link.parts)
        lines.append(f"  The rows shown are block 0's; blocks of the result are partial sums, add them: {sums}.")
    return lines + convert


def _shorten(rows: list[int]) -> str:
    text = " ".join(str(row) for row in rows[:32])
    return text + (" ..." if len(rows) > 32 else "")
