"""Finds bugs on any path of a kernel's code, without a launch: `lint(CodeObject.parse(data))` returns findings.

    registers.py    sets of registers as the bits of an integer
    steps.py        an instruction as the analyses see it
    gaps.py         distance between two instructions, and instructions that close the gap
    constants.py    addresses that code computes in scalar registers
    graph.py        control flow: the instructions that may run after each one
    flow.py         data flow over a graph, to its fixed point
    lds_addresses.py  bytes of LDS that accesses touch, if known
    outstanding.py  operations that may be outstanding: missing waits
    distances.py    wait states between instructions: hazards
    compares.py     conditions that code tests, in one form; register values after them
    work_items.py   scalar values that work-item numbers imply
    conditions.py   directions that branches can take, by facts about a path
    undefined.py    uses of registers that nothing defined
    barriers.py     barriers that only some waves reach
    turns.py        pairs of barriers by which halves of a workgroup take turns
    certainty.py    proofs that two instructions meet on every path
    search.py       the shortest possible path between two instructions
    clocks.py       clocks between two instructions, by the time model
    gfx12/          the analyses for gfx1250
    causes.py       findings by importance, one for each cause
    kernel.py       the findings of a kernel and of a code object

This analysis shares only the tables of `simgpu.hardware` with the rest of checked mode and with the judge of mutants
(`simgpu.tools.robustness.harmless`). docs/reference/lint.md says what it promises.
"""

from __future__ import annotations

from simgpu.checks.lint.kernel import lint, lint_causes, lint_kernel

__all__ = ["lint", "lint_causes", "lint_kernel"]
