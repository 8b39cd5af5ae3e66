"""Every row's text, given to clang for every target: accepted if the table has it, else refused."""

from __future__ import annotations

import re

import pytest

from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from tests.support.clang import answer

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def text(row: MatrixInstruction, mnemonic: str, target: str) -> str:
    """Returns the instruction with operands that are legal on the target and do not overlap."""

    def reg(file: str, first: int, count: int) -> str:
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    file = "a" if target == "gfx908" else "v"
    d, a, b = (
        reg(file, 0, row.registers("D")),
        reg("v", 32, row.registers("A")),
        reg("v", 40, row.registers("B")),
    )
    if row.sparse:
        return f"{mnemonic} {d}, {a}, {b}, v50"
    return f"{mnemonic} {d}, {a}, {b}, {d}" + (
        ", v50, v51 op_sel:[0,0] op_sel_hi:[0,0]" if row.scaled else ""
    )


def rejected(lines: list[str], target: str) -> set[int]:
    """Returns the line numbers (from 0) that clang refuses."""
    options = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-x", "assembler", "-ferror-limit=0"]
    done = answer(["clang", *options, "-c", "-", "-o", "/dev/null"], "\n".join(lines) + "\n")
    return {int(line) - 1 for line in re.findall(r"<stdin>:(\d+):\d+: error", done.stderr)}


@pytest.mark.parametrize("target", TARGETS)
def test_clang_takes_the_rows_of_the_target_and_no_others(target):
    cases: dict[str, bool] = {}
    for source in TARGETS:
        for row in instructions(source):
            for name in (row.mnemonic, *row.aliases):
                try:
                    here: MatrixInstruction | None = find(name, target)
                except TargetError:
                    here = None
                cases[text(here or row, name, target)] = here is not None
    refused = rejected(list(cases), target)
    wrong = [
        f"{line}: clang {'refuses' if index in refused else 'takes'} it"
        for index, (line, ours) in enumerate(cases.items())
        if ours == (index in refused)
    ]
    assert not wrong
    assert sum(cases.values()) >= len(instructions(target))
