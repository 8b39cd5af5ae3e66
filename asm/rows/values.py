"""Values of an operator on rows in registers: reductions over lanes and waves, parts that are computed once a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.expressions import Computation
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import row_reduce, wave_reduce
from simgpu.asm.rows.places import Places
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.program import Step

COMBINE = {"sum": "v_add_f32", "maximum": "v_max_f32"}
NEUTRAL = {"sum": 0, "maximum": -inf}
Registers = Mapping[str, Reg]


class Values:
    """Emits steps of a program. lanes: that share a row or a group; waves: that share a row; wave: SGPR, its number."""

    def __init__(self, k: KernelBuilder, places: Places, lanes: int, waves: int, wave: Reg | None) -> None:
        self.k, self.places, self.lanes, self.waves, self.wave = k, places, lanes, waves, wave
        self.scratch, self.first, self.neutral = (k.v.alloc(name) for name in ("scratch", "elements left out", "neutral"))

    def start(self, step: Step) -> Reg:
        """Returns a VGPR with the neutral element of a reduction."""
        state = self.k.v.alloc(step.name)
        self.k.v_mov_b32(state, NEUTRAL[step.combine])
        return state

    def reduce(self, steps: Iterable[Step], states: Mapping[str, Reg], group: int, elements: Iterable[Registers]) -> None:
        """Combines the elements of a chunk with the lane's states. elements: arguments of each, by name."""
        k, steps = self.k, tuple(steps)
        ragged = group >= self.places.sure
        if ragged:
            self.places.first_new(self.first, group)
        for number, given in enumerate(elements):
            computed = Computation(k, [step.rest for step in steps], given)
            for step in steps:
                found = self.scratch if ragged or step.rest.op != "argument" else given[step.rest.name]
                computed.register(step.rest, found)
                if ragged:
                    k.v_mov_b32(self.neutral, NEUTRAL[step.combine])
                    k.v_cmp_ge_u32("vcc", number, self.first)
                    k.v_cndmask_b32(found, self.neutral, found, "vcc")
                k.emit(COMBINE[step.combine], states[step.name], found, states[step.name])

    def merge(self, step: Step, state: Reg) -> None:
        """Combines the states of all lanes and waves that share a row, or of all lanes that share a group."""
        k, combine = self.k, COMBINE[step.combine]
        if self.lanes < WAVEFRONT:
            row_reduce(k, combine, state, self.scratch, self.lanes, step.name)
            return
        total = k.s.alloc(step.name)
        wave_reduce(k, combine, state, total, step.name)
        k.v_mov_b32(state, total)
        k.s.free(total)
        if self.wave is not None:
            self._merge_waves(step, state, self.wave)

    def _merge_waves(self, step: Step, state: Reg, wave: Reg) -> None:
        k, address, place = self.k, self.scratch, self.k.s.alloc("place")
        region = k.region(f"{step.name} of waves", WORD * self.waves)
        k.s_lshl_b32(place, wave, log2(WORD))
        k.v_mov_b32(address, place)
        k.s.free(place)
        k.s_mov_b64("exec", 1, note="one lane")
        k.ds_write_b32(address, state, offset=region.offset)
        k.s_mov_b64("exec", -1)
        k.s_barrier()
        k.v_and_b32(address, self.waves - 1, self.places.lane)
        k.v_lshlrev_b32(address, log2(WORD), address)
        k.ds_read_b32(state, address, offset=region.offset)
        row_reduce(k, COMBINE[step.combine], state, self.scratch, self.waves, step.name)

    def of_row(self, step: Step, states: Registers) -> dict[str, Reg]:
        """Emits the parts of a step that depend on reductions only. Returns their registers by name."""
        k, found = self.k, {}
        computed = Computation(k, step.of_row, states)
        for number, part in enumerate(step.of_row):
            if part.op == "argument":
                found[step.row_value(number)] = states[part.name]
                continue
            found[step.row_value(number)] = k.v.alloc("value of a row")
            computed.register(part, found[step.row_value(number)])
        return found

    def results(self, steps: tuple[Step, ...], targets: tuple[Reg, ...], given: Registers) -> None:
        """Replaces an element by its results. targets: a VGPR for each, which may be an argument's."""
        k = self.k
        computed = Computation(k, [step.rest for step in steps], given)
        held = [k.v.alloc("result") for _ in steps[1:]]
        for step, register in zip(steps[1:], held, strict=True):
            computed.register(step.rest, register)
        computed.register(steps[0].rest, targets[0])
        for register, target in zip(held, targets[1:], strict=True):
            k.v_mov_b32(target, register)
        k.v.free(*held)
