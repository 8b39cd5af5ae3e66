"""Origin of the error of a computation's worst element: its workgroup runs again with f64 values next to its own."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError
from simgpu.tools.shared.console import progress
from simgpu.tools.shared.launching import simulated_device

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.checks.numerics.shadow.origins import Origin, Origins
    from simgpu.tools.cases.workload import Workload

SHOWN, LEAST = 8, 0.005  # number of instructions listed, and the least share of the error of a listed one
TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class WorstElement:
    """Element of the result that is nearest to its bound, and the instructions that made its error."""

    name: str
    index: tuple[int, ...]
    want: float  # by the float64 reference
    kernel: str
    emitters: dict[str, str]  # Python lines by source line
    found: Origins

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"element": [self.name, *self.index], "want": self.want, "kernel": self.kernel, **asdict(self.found)}

    def lines(self) -> list[str]:
        """Returns lines for people."""
        found = self.found
        element = f"{self.name}[{','.join(map(str, self.index))}]"
        said = [
            f"{element} = {found.value:.9g}, by float64 {self.want:.9g}. Workgroup {found.workgroup}, wave {found.wave} makes "
            f"{found.shadow:.9g} of it with f64 inside: the relative error is {found.relative:.2g}",
            " share  times  relative error before and after, largest",
        ]
        groups = self._of_a_line()
        shown = [group for group in groups if sum(one.share for one in group) >= LEAST][:SHOWN]
        rest = 1.0
        for first, *others in shown:
            group = [first, *others]
            share = sum(one.share for one in group)
            rest -= share
            lines = ", ".join(line for line in (first.where.source, self.emitters.get(first.where.source, "")) if line)
            more = f" and {len(others)} more of this line" if others else ""
            place = f"{first.where.name} `{first.where.text}`{more}" + (f" ({lines})" if lines else "")
            before, after = max(one.before for one in group), max(one.after for one in group)
            said.append(f"{share:6.1%} {sum(one.times for one in group):6,}  {before:.1e} -> {after:.1e}  {place}")
        if rest >= LEAST:
            said.append(f"{rest:6.1%}  by others, from {len(groups) - len(shown)} lines")
        if not found.complete:
            said.append("Not all paths were followed: there are too many.")
        return said

    def _of_a_line(self) -> list[list[Origin]]:
        """Groups an instruction's copies on one source line, as unrolling makes many; the largest share comes first."""
        groups: dict[tuple[str, str], list[Origin]] = {}
        for one in self.found.origins:
            line = self.emitters.get(one.where.source) or one.where.source or one.where.name
            groups.setdefault((line, one.where.text.split()[0]), []).append(one)
        return sorted(groups.values(), key=lambda group: -sum(one.share for one in group))


def worst_element(
    options: Namespace, kernel: EmittedKernel, work: Workload, index: tuple[int, ...], want: float
) -> WorstElement:
    """Finds the instructions that made the error of an element of the result. Raises LaunchError for types without shadows and
    for an unknown origin."""
    from simgpu.asm import Prepared
    from simgpu.checks.numerics.shadow.origins import origins_of
    from simgpu.checks.writer import writer_of
    from simgpu.engine.allocations import SavedMemory

    result = work.operands[work.result]
    if result.flat.dtype.name not in TYPES:
        raise LaunchError(f"--shadow f64 follows results of {', '.join(TYPES)}, not {result.flat.dtype}")
    device = simulated_device(options, kernel.target)
    buffers = [device.upload(array) for array in work.arrays]
    prepared = Prepared(kernel, device)
    address = buffers[work.result].address + sum(i * s for i, s in zip(index, result.strides, strict=True)) * result.flat.itemsize
    writer = None
    with progress("following the worst element's workgroup"):
        for entry, call in prepared.calls(*buffers):
            before = SavedMemory.of(device.memory)
            geometry = Geometry.of(call["grid"], call["block"], 0, None)
            if writer_of(entry, geometry, call["args"], address) is not None:
                writer = before, entry, geometry, call["args"]
        if writer is None:
            raise LaunchError(f"{kernel.name} writes no {kernel.operands[work.result]}{list(index)}")
        before, entry, geometry, args = writer
        before.restore()
        found = origins_of(entry, geometry, args, address, np.dtype(result.flat.dtype))
    assert found is not None
    return WorstElement(kernel.operands[work.result], index, want, entry.name, dict(kernel.origins), found)
