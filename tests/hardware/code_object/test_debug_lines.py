"""Line tables and inlined calls match pyelftools, in every version of DWARF that clang writes."""

from __future__ import annotations

import bisect
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

from simgpu.hardware.code_object.code_object import CodeObject
from tests.hardware.code_object.test_inlined import SOURCE
from tests.support.clang import file_of
from tests.support.places import SHARED

MANIFEST = SHARED / "corpus" / "manifest.json"
CORPUS = [case["hsaco"] for case in json.loads(MANIFEST.read_text())["cases"]] if MANIFEST.exists() else []

# Several functions, files, sequences and ranges that are not contiguous.
MORE = """#include "other.h"
__attribute__((amdgpu_kernel)) void second(__attribute__((address_space(1))) int *p, int n) {
  for (int i = 0; i < n; ++i) {
    if (p[i] > 3)
      p[i] = twice(p[i + 1]);
    else
      p[i] -= twice(p[i]) * 7;
  }
}
"""
OTHER = "static __attribute__((always_inline)) inline int twice(int x) {\n  return x > 5 ? 2 * x : x / 3;\n}\n"


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)


def rows(dwarf: Any) -> Iterator[tuple[int, int, str | None]]:
    """Yields address, order and `file:line` of each row, as read by pyelftools. An end of sequence comes first and has no line."""
    order = 0
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        first = 0 if program.header["version"] >= 5 else 1
        files = program.header["file_entry"]
        for state in (entry.state for entry in program.get_entries() if entry.state is not None):
            order += 1
            known = 0 <= state.file - first < len(files) and state.line and not state.end_sequence
            line = f"{_text(files[state.file - first].name)}:{state.line}" if known else None
            yield state.address, 0 if state.end_sequence else order, line


def calls(dwarf: Any) -> Iterator[tuple[int, int, int, tuple[str, str, int]]]:
    """Yields first address, end address, depth, and folder, file and line of each inlined call."""

    def below(unit: Any, parent: Any, depth: int, base: int, files: dict[int, tuple[str, str]]) -> Iterator[Any]:
        for child in parent.iter_children():
            found = child.attributes
            inside = depth + (child.tag == "DW_TAG_inlined_subroutine")
            if inside > depth:
                line = (*files[found["DW_AT_call_file"].value], found["DW_AT_call_line"].value)
                for low, high in ranges(unit, found, base):
                    yield low, high, inside, line
            yield from below(unit, child, inside, base, files)

    def ranges(unit: Any, found: Any, base: int) -> Iterator[tuple[int, int]]:
        if "DW_AT_ranges" not in found:
            low, high = found["DW_AT_low_pc"].value, found["DW_AT_high_pc"]
            yield low, high.value if high.form == "DW_FORM_addr" else low + high.value
            return
        for item in dwarf.range_lists().get_range_list_at_offset(found["DW_AT_ranges"].value, unit):
            if isinstance(item, BaseAddressEntry):
                base = item.base_address
            else:
                first = 0 if item.is_absolute else base
                yield first + item.begin_offset, first + item.end_offset

    for unit in dwarf.iter_CUs():
        header = dwarf.line_program_for_CU(unit).header
        first = 0 if header["version"] >= 5 else 1
        folders = [_text(name) for name in header["include_directory"]]
        files = {}
        for number, entry in enumerate(header["file_entry"], start=first):
            at = entry.dir_index - first
            files[number] = (folders[at] if 0 <= at < len(folders) else "", _text(entry.name))
        top = unit.get_top_DIE()
        low = top.attributes.get("DW_AT_low_pc")
        yield from below(unit, top, 0, low.value if low else 0, files)


def compare(data: bytes) -> tuple[int, int]:
    """Returns the numbers of addresses that have a line and a call, after comparing each with pyelftools."""
    code = CodeObject.parse(data)
    dwarf = ELFFile(io.BytesIO(code.data)).get_dwarf_info(relocate_dwarf_sections=False)
    table, inlined = sorted(rows(dwarf)), list(calls(dwarf))
    starts = [row[0] for row in table]
    lines = nested = 0
    for segment in code.segments:
        for address in range(segment.address - 4, segment.end + 4, 4) if segment.executable else ():
            at = bisect.bisect_right(starts, address) - 1
            line = code.debug.source_line(address)
            assert (line and str(line)) == (table[at][2] if at >= 0 else None), hex(address)
            inside = sorted((call for call in inlined if call[0] <= address < call[1]), key=lambda call: -call[2])
            calls_here = code.debug.frames(address)[line is not None :]
            found = [(call.line.directory, call.line.file, call.line.line) for call in calls_here]
            assert found == [call[3] for call in inside], hex(address)
            lines, nested = lines + (line is not None), nested + bool(found)
    return lines, nested


@pytest.mark.parametrize("options", [
    *(["-O2", f"-gdwarf-{version}", *packed] for version in (2, 3, 4, 5) for packed in ([], ["-gz=zlib"])),
    ["-O0", "-gdwarf-5"], ["-O2", "-gdwarf-5", "-gdwarf64"], ["-O2", "-gdwarf-4", "-fdebug-types-section"],
    ["-O3", "-gline-tables-only"],
], ids=" ".join)  # fmt: skip
def test_what_clang_writes(options: list[str]) -> None:
    clang = ["clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-c", *options]
    commands = [[*clang, f"{name}.c", "-o", f"{name}.o"] for name in ("one", "two")]
    commands.append(["ld.lld", "-shared", "one.o", "two.o", "-o", "all.co"])
    lines, nested = compare(file_of(commands, {"one.c": SOURCE, "two.c": MORE, "other.h": OTHER}, "all.co"))
    assert lines > 30 and nested > 5


SAME_NUMBER = """__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) int *p) {
  p[0] = 1;
#line 7 "waits.h"
  __builtin_amdgcn_s_barrier();
#line 7 "k.c"
  p[1] = 2;
}
"""


def test_statements_of_other_files() -> None:
    """A statement begins where the file changes and the number of the line does not, which LLVM leaves unmarked."""
    clang = ["clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-g", "-O1", "-c", "k.c", "-o", "k.o"]
    code = CodeObject.parse(file_of([clang, ["ld.lld", "-shared", "k.o", "-o", "k.co"]], {"k.c": SAME_NUMBER}, "k.co"))
    begun = [str(code.debug.source_line(address)) for address in code.debug.statements(0, 1 << 20)]
    assert begun.index("waits.h:7") < begun.index("k.c:7")


@pytest.mark.skipif(not CORPUS, reason="the corpus of compiled kernels is not here")
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.exhaustive), 5], ids=["all", "a fifth"])
def test_the_corpus(step: int) -> None:
    found = [compare((SHARED / "corpus" / name).read_bytes()) for name in CORPUS[::step]]
    assert sum(lines for lines, _ in found) > 1000 / step and sum(nested for _, nested in found) > 1000 / step
