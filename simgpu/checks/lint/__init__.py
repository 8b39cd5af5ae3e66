"""What every path of a kernel's code lacks, without a launch: `lint(CodeObject.parse(data))` gives findings.

    registers.py    sets of registers as the bits of an integer
    steps.py        an instruction as the analyses see it
    constants.py    addresses that code computes in scalar registers
    graph.py        control flow: what may run behind each instruction
    flow.py         data flow over a graph, to its fixed point
    outstanding.py  operations that may be outstanding: missing waits
    distances.py    wait states between instructions: hazards
    conditions.py   which way branches can go, by conditions that registers remember
    undefined.py    registers that nothing defined, where they matter
    barriers.py     barriers that only some waves come to
    kernel.py       the findings of a kernel and of a code object

An analysis of its own: it shares the tables of `simgpu.hardware` with the rest of checked mode and with the judge of mutants
(`simgpu.tools.robustness.harmless`), and nothing else. What is promised: docs/lint.md.
"""

from __future__ import annotations

from simgpu.checks.lint.kernel import lint, lint_kernel

__all__ = ["lint", "lint_kernel"]
