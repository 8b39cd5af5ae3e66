"""What every path of a kernel's code lacks, without a launch: `lint(CodeObject.parse(data))` gives findings.

    registers.py    sets of registers as the bits of an integer
    steps.py        an instruction as the analyses see it
    gaps.py         what lies between two instructions, and what closes it
    constants.py    addresses that code computes in scalar registers
    graph.py        control flow: what may run behind each instruction
    flow.py         data flow over a graph, to its fixed point
    lds_addresses.py  which bytes of LDS accesses touch, where that is known
    outstanding.py  operations that may be outstanding: missing waits
    distances.py    wait states between instructions: hazards
    compares.py     conditions that code tests, in one form; what registers may hold after them
    work_items.py   what the numbers of work-items tell of scalar registers
    conditions.py   which way branches can go, by what is known on a path
    undefined.py    registers that nothing defined, where they matter
    barriers.py     barriers that only some waves come to
    certainty.py    whether two instructions meet on every path
    search.py       the shortest way between two instructions that conditions allow
    clocks.py       clocks of the time model between them
    causes.py       findings in the order in which they matter, one for each cause
    kernel.py       the findings of a kernel and of a code object

An analysis of its own: it shares the tables of `simgpu.hardware` with the rest of checked mode and with the judge of mutants
(`simgpu.tools.robustness.harmless`), and nothing else. What is promised: docs/lint.md.
"""

from __future__ import annotations

from simgpu.checks.lint.kernel import lint, lint_causes, lint_kernel

__all__ = ["lint", "lint_causes", "lint_kernel"]
