"""Every number of the paper: as printed, by each policy, and the erratum if they differ.

We measured nothing here on a GPU: measured figures are quoted from the paper and marked as quoted.
"""

from __future__ import annotations

from simgpu.tools.validation.paper.entry import PaperNumber
from simgpu.tools.validation.paper.families import families
from simgpu.tools.validation.paper.gemm import derivation, occupancy
from simgpu.tools.validation.paper.givens import Givens
from simgpu.tools.validation.paper.machine import hardware, layout
from simgpu.tools.validation.paper.operators import operators
from simgpu.tools.validation.paper.registers import table_2
from simgpu.tools.validation.paper.times import table_3
from simgpu.tools.validation.paper.traffic import traffic

SECTIONS = (hardware, layout, derivation, occupancy, table_2, operators, traffic, table_3, families)


def entries(givens: Givens | None = None) -> list[PaperNumber]:
    """Returns all rows, in the paper's order. givens: replace the paper's."""
    given = givens or Givens()
    return [entry for rows in SECTIONS for entry in rows(given)]
