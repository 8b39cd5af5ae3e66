"""`simgpu disasm`: kernels of a code object, with resources, descriptor, arguments and instructions, and functions they call."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.file_kernel import kernel_named
from simgpu.tools.cases.sources import FILE, add_compiler_option, read_code_object
from simgpu.tools.shared.console import add_json_option, print_json_entries, show, table

if TYPE_CHECKING:
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.hardware.code_object.kernels import CalledFunction, KernelInfo

RESOURCES = (
    "vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count", "group_segment_size",
    "private_segment_size", "kernarg_size", "max_flat_workgroup_size", "required_workgroup_size",
    "wavefront_size", "uses_dynamic_stack", "language",
)  # fmt: skip


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("file", metavar="FILE", help=FILE)
    parser.add_argument("--kernel", metavar="K", help="only this kernel (default: all)")
    parser.add_argument("--target", help="the entry of a bundle (default: its only one)")
    add_compiler_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints every kernel and function. Raises DecodeError for a file that is no code object."""
    code = read_code_object(options.file, options.target, options.options)
    names = list(code.kernels) if options.kernel is None else [kernel_named(code.kernels, options.kernel)]
    documents = (_kernel_document(code, code.kernels[name]) for name in names)  # one at a time: libraries have thousands of kernels
    if options.json:
        about = {
            "file": options.file,
            "target": code.target,
            "code_object_version": code.version,
            "xnack": code.xnack,
            "sramecc": code.sramecc,
            "functions": [] if options.kernel else [_code_document(code, function) for function in code.functions],
        }
        print_json_entries(about, "kernels", documents)
        return 0
    print(
        f"{options.file}: {code.target}, code object version {code.version}, xnack {code.xnack}, "
        f"sramecc {code.sramecc}, {len(code.kernels)} kernel(s)"
    )
    for document in documents:
        _show_kernel(document)
    for function in () if options.kernel else code.functions:
        document = _code_document(code, function)
        print(_heading(document))
        _show_instructions(document)
    return 0


def _code_document(code: CodeObject, part: KernelInfo | CalledFunction) -> dict[str, Any]:
    from simgpu.tools.tables.kernel_use import listing

    source = None
    instructions = []
    for offset, inst, text in listing(code, part):
        line = code.source_line(part.entry + offset)
        size = inst.size if inst else 4
        raw = code.read(part.entry + offset, min(size, part.code_size - offset))
        instructions.append({
            "offset": offset,
            "bytes": raw.hex(),
            "text": text,
            "source": line if line != source else None,
        })  # fmt: skip
        source = line
    return {
        "name": part.name,
        "title": part.title,
        "entry": part.entry,
        "code_bytes": part.code_size,
        "instructions": instructions,
    }


def _kernel_document(code: CodeObject, kernel: KernelInfo) -> dict[str, Any]:
    return {
        **_code_document(code, kernel),
        "resources": {name: getattr(kernel, name) for name in RESOURCES},
        "descriptor": asdict(kernel.descriptor),
        "arguments": [asdict(argument) for argument in kernel.arguments],
    }


def _heading(document: dict[str, Any]) -> str:
    count = len(document["instructions"])
    return f"\n{document['title']}: {count} instructions, {document['code_bytes']} bytes at {document['entry']:#x}"


def _show_kernel(document: dict[str, Any]) -> None:
    print(_heading(document))
    show(table("Resources (metadata)", ("field", "value"), _fields(document["resources"])))
    present = {name: value for name, value in document["descriptor"].items() if value}
    show(table("Kernel descriptor (fields that are not named are 0)", ("field", "value"), _fields(present)))
    columns = ("argument", "offset", "size", "kind", "type")
    rows = [
        (f"{index} {a['name']}", a["offset"], a["size"], a["value_kind"], a["type_name"] or a["value_type"])
        for index, a in enumerate(document["arguments"])
    ]
    if rows:
        show(table("Arguments", columns, rows))
    _show_instructions(document)


def _show_instructions(document: dict[str, Any]) -> None:
    print()
    for row in document["instructions"]:
        if row["source"]:
            print(f"; {row['source']}")
        words = bytes.fromhex(row["bytes"])
        dwords = " ".join(words[i : i + 4][::-1].hex().upper() for i in range(0, len(words), 4))
        print(f"{row['offset']:6x}:  {row['text']:<60} // {dwords}")


def _fields(fields: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Returns names and values; extents as 1 x 2 x 3, without absent ones."""
    shown = ((name, " x ".join(map(str, v)) if isinstance(v, tuple) else v) for name, v in fields.items())
    return [(name, value) for name, value in shown if value != ""]
