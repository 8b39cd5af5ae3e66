"""P and dS of a step, from S and dP, in a wave's registers.

Register r of atom a and own atom t holds row 16a + 4g + r of the other side and own row 16t + i. L and D belong to queries: those
of the other side for dK and dV, the own ones for dQ. With c = scale * log2(e), and the gain G of P:

    P = exp2(c * S + L')    L' = log2(G) - log2(e) * L
    dS = P * (dP / G + D')    D' = -D / G
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simgpu.asm.attention.frame import LOG2_E
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.lanes import Narrowing
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention_backward.tiles import GradientPlan
from simgpu.operators.tree import FINITE_FLOOR

QUAD = 4  # rows of a lane in an atom


@dataclass(frozen=True)
class AtomPart:
    """Some atoms of S and dP: own ones and those of a step."""

    own: range
    other: range

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """(t, a, r) of each element of a lane."""
        return [(t, a, r) for t in self.own for a in self.other for r in range(QUAD)]


def halves(plan: GradientPlan) -> tuple[AtomPart, ...]:
    """Returns the parts of a step: products of one hide arithmetic of the other. By atoms of the step, or else by own atoms."""
    own, other = range(plan.atoms), range(plan.step // ATOM)
    if len(other) > 1:
        return tuple(AtomPart(own, range(a, a + 1)) for a in other)
    middle = -(-len(own) // 2)
    return tuple(AtomPart(ts, other) for ts in (own[:middle], own[middle:]) if ts)


class Weights:
    """Emits P and dS. ranges: VGPRs of the plan, by name. first_row: SGPR, the step's first row of the other side."""

    def __init__(self, k: KernelBuilder, plan: GradientPlan, ranges: dict[str, Reg], factor: Reg, first_row: Reg) -> None:
        self.k, self.plan, self.ranges, self.factor, self.first_row = k, plan, ranges, factor, first_row
        self.narrowing = Narrowing(k, plan.problem.dtype)
        self.keys = plan.side == "keys"
        self.cut: Reg | None = None  # first row from which, or up to which, a step needs the mask; None: no mask
        self.inverse: Reg | float = 1.0
        if plan.gain != 1:
            self.inverse = k.scalar("1 / gain of P", 1 / plan.gain)

    def number(self, t: int, a: int, r: int) -> int:
        """Returns the number of an element of S or dP."""
        return (t * (self.plan.step // ATOM) + a) * QUAD + r

    def score(self, name: str, t: int, a: int) -> Reg:
        """Returns the accumulators of an atom of S or dP."""
        return self.ranges[name].group(t * (self.plan.step // ATOM) + a, QUAD)

    def operand(self, name: str, t: int) -> Reg:
        """Returns the registers of P or dS, rounded: two for each atom of the step."""
        return self.ranges[name].group(t, 2 * (self.plan.step // ATOM))

    def _value(self, name: str, place: tuple[int, int, int]) -> Reg:
        """Returns the VGPR of an element for arithmetic; emits the move from the accumulators, if they are a file of their own."""
        number, source = self.number(*place), self.ranges[name]
        if source.file == "v":
            return source[number]
        half = self.ranges["weights"].count // 2
        return self.ranges["weights"][number + half * (name == "dP")]

    def _read(self, name: str, place: tuple[int, int, int]) -> Reg:
        value, source = self._value(name, place), self.ranges[name]
        if source.file == "a":
            self.k.v_accvgpr_read_b32(value, source[self.number(*place)])
        return value

    def _of_query(self, name: str, place: tuple[int, int, int]) -> Reg:
        t, a, r = place
        return self.ranges[name][QUAD * a + r if self.keys else t]

    # -- values ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Emits L' and D' from L and D, in place."""
        k, gain = self.k, self.plan.gain
        for name, factor, addend in (("L", -LOG2_E, math.log2(gain)), ("D", -1 / gain, 0.0)):
            for number in range(self.ranges[name].count):
                k.v_mul_f32(self.ranges[name][number], factor, self.ranges[name][number])
                if addend:
                    k.v_add_f32(self.ranges[name][number], addend, self.ranges[name][number])

    def probabilities(self, part: AtomPart) -> None:
        """Emits P; for dV also rounded to the operands' type."""
        k = self.k
        for place in part.places:
            value = self._read("S", place)
            k.v_fma_f32(value, value, self.factor, self._of_query("L", place))
        self._mask(part)
        for place in part.places:
            value = self._value("S", place)
            k.v_exp_f32(value, value, note="P")
        if self.keys:
            self._round(part, "P", "S", keep=True)

    def gradients(self, part: AtomPart) -> None:
        """Emits dS, rounded to the operands' type."""
        k = self.k
        for place in part.places:
            value = self._read("dP", place)
            k.v_fma_f32(value, value, self.inverse, self._of_query("D", place))
            k.v_mul_f32(value, self._value("S", place), value, note="dS")
        self._round(part, "dS", "dP", keep=False)

    def _round(self, part: AtomPart, target: str, source: str, keep: bool) -> None:
        spare = self.ranges["temporaries"]
        for number, place in enumerate(part.places[::2]):
            t, a, r = place
            low, high = self._value(source, place), self._value(source, (t, a, r + 1))
            packed = self.ranges[target][self.number(*place) // 2]
            if keep:
                self.narrowing.pack_copies(packed, low, high, spare.group(number % 3, 2))
            else:
                self.narrowing.pack(packed, low, high, spare[number % 3])

    # -- masks -------------------------------------------------------------------------------------

    def _mask(self, part: AtomPart) -> None:
        """Emits the finite floor for exponents of pairs that are not seen or do not exist, out of line, if a step has any."""
        if self.cut is None:
            return
        k, keys, (place, floor) = self.k, self.keys, (self.ranges["temporaries"][n] for n in range(2))
        k.emit(f"s_cmp_{'lt' if keys else 'gt'}_i32", self.first_row, self.cut)
        with k.aside("scc1", "mask", "masked"):
            k.v_mov_b32(floor, FINITE_FLOOR)
            for t in part.own:
                k.v_subrev_u32(place, self.first_row, self.ranges["edges"][t])
                for a in part.other:
                    for r in range(QUAD):
                        value = self._value("S", (t, a, r))
                        k.emit(f"v_cmp_{'ge' if keys else 'le'}_i32", "vcc", ATOM * a + r, place)
                        k.v_cndmask_b32(value, floor, value, "vcc")
