"""All launches of a kernel: its arguments, grid and block as symbols, and assumptions about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import z3

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.lane_smt import bits_of
from simgpu.proof.entry import AXES, KernelInputs, argument_symbol, group_id, item_id
from simgpu.proof.safety.integers import Integers
from simgpu.proof.safety.sizes import BadAssumption, SizeExpression, whole, widen

Term = Any
MOST_NUMBER = {32: 1 << 30, 64: 1 << 40}  # of an argument of these bits that sizes or conditions name, and less
MOST_ITEMS = 1 << 30  # work-items in a dimension of a launch, and less


def extent(axis: str) -> Term:
    """Returns the work-items of a workgroup in a dimension, 16 bits."""
    return z3.BitVec(f"hidden_group_size_{axis}", 16)


def block_count(axis: str) -> Term:
    """Returns the workgroups in a dimension."""
    return z3.BitVec(f"hidden_block_count_{axis}", 32)


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of a user about a kernel's launches.

    buffers: bytes of each buffer by the argument's name or number; conditions: comparisons that hold; block: work-items of a
    workgroup, () for any; dynamic_lds: bytes of LDS beyond the kernel's own; most_bytes: a buffer has fewer.
    """

    buffers: Mapping[str, SizeExpression] = field(default_factory=dict)
    conditions: Sequence[SizeExpression] = ()
    block: tuple[int, ...] = ()
    dynamic_lds: int = 0
    most_bytes: int = 1 << 31


@dataclass
class Launches:
    """Launches of a kernel that assumptions allow."""

    inputs: KernelInputs
    assumptions: Assumptions

    def __post_init__(self) -> None:
        known = {*self.names, *self.pointers}
        for expression in (*self.assumptions.buffers.values(), *self.assumptions.conditions):
            for name in expression.names():
                if name not in self.names:
                    raise BadAssumption(f"{expression.text!r}: {name!r} is no number here; there are {', '.join(self.names)}")
        most = self.assumptions.most_bytes
        for name, size in self.assumptions.buffers.items():
            if not any(size.names()) and not 0 <= size.value({}) < most:
                raise BadAssumption(f"buffer {name}: {size.text} bytes are not from 0 to below {most:,} (--largest-buffer)")
            if name not in self.pointers and name not in map(str, self.pointers.values()):
                shown = ", ".join(self.pointers) or "none"
                raise BadAssumption(f"{name!r} is no buffer{' but a number' if name in known else ''}; buffers are {shown}")
        for name, index in self.pointers.items():
            if {name, str(index)} <= self.assumptions.buffers.keys():
                raise BadAssumption(f"the size of buffer {name} is stated twice, by name and by number")
        self._check_block()

    def _check_block(self) -> None:
        info, block = self.inputs.info, self.assumptions.block
        shown, required = ",".join(map(str, block)), tuple(info.required_workgroup_size)
        if block and required and (*block, 1, 1)[:3] != (*required, 1, 1)[:3]:
            raise BadAssumption(f"a workgroup of {shown}: the kernel requires {','.join(map(str, required))}")
        if math.prod(block) > info.max_flat_workgroup_size:
            raise BadAssumption(f"a workgroup of {shown}: the kernel takes up to {info.max_flat_workgroup_size} work-items")

    # -- names ---------------------------------------------------------------------------------

    @cached_property
    def pointers(self) -> dict[str, int]:
        """Numbers of arguments that are pointers, by name."""
        return {plain(arg.name): at for at, arg in enumerate(self.inputs.info.named_arguments) if arg.is_pointer}

    @cached_property
    def names(self) -> dict[str, tuple[Term, bool]]:
        """Symbols that expressions may name, and if they have signs. An argument hides a launch's extent of its name."""
        info = self.inputs.info
        found: dict[str, tuple[Term, bool]] = {}
        for at, (named, typed) in enumerate(zip(info.named_arguments, info.typed_arguments, strict=True)):
            if named.value_kind == "by_value" and named.size in (1, 2, 4, 8) and not typed.value_type.startswith(("f", "bf")):
                found[plain(named.name)] = argument_symbol(at, named), not typed.value_type.startswith("u")
        return {**found, **{name: (term, False) for name, term in self.extents.items() if name not in found}}

    def size(self, base: str) -> SizeExpression | None:
        """Returns the bytes of the buffer that a pointer argument's symbol points to."""
        for name, index in self.pointers.items():
            if base == str(argument_symbol(index, self.inputs.info.explicit_arguments[index])):
                return self.assumptions.buffers.get(name) or self.assumptions.buffers.get(str(index))
        return None

    def bits(self) -> dict[str, Term]:
        """Returns the values of names as bit-vectors for expressions."""
        return {name: widen(term, signed) for name, (term, signed) in self.names.items()}

    def whole(self, integers: Integers) -> dict[str, Term]:
        """Returns the values of names as integers."""
        extents = self._whole_extents(integers)
        return {
            name: extents[name] if term is self.extents.get(name) else whole(integers, term, signed)
            for name, (term, signed) in self.names.items()
        }

    def _whole_extents(self, integers: Integers) -> dict[str, Term]:
        """Returns extents of grid and workgroup as integers, by name."""
        return {name: self._fixed.get(name) or integers.of(term) for name, term in self.extents.items()}

    @cached_property
    def extents(self) -> dict[str, Term]:
        """Extents of grid and workgroup, by name."""
        return {f"{name}_{axis}": of(axis) for name, of in (("grid", block_count), ("block", extent)) for axis in AXES}

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Work-items of a workgroup, if they are known."""
        return tuple(self.assumptions.block or self.inputs.info.required_workgroup_size)

    @cached_property
    def _fixed(self) -> dict[str, int]:
        """Extents that are known, by name."""
        found = {}
        for at, (axis, used) in enumerate(zip(AXES, self.used, strict=True)):
            if not used:
                found[f"grid_{axis}"] = 1
            if self.block or not used:
                found[f"block_{axis}"] = self.block[at] if at < len(self.block) else 1
        return found

    @cached_property
    def stated(self) -> list[str]:
        """Names of arguments in what the user states."""
        expressions = (*self.assumptions.buffers.values(), *self.assumptions.conditions)
        names = dict.fromkeys(name for each in expressions for name in each.names())
        return [name for name in names if self.names[name][0] is not self.extents.get(name)]

    # -- facts ---------------------------------------------------------------------------------

    @property
    def used(self) -> tuple[bool, bool, bool]:
        """For each axis, if the kernel uses it: an axis that it does not ask for has one work-item and one workgroup."""
        descriptor, block = self.inputs.info.descriptor, self.block
        groups = True, descriptor.enable_workgroup_id_y, descriptor.enable_workgroup_id_z
        items = [descriptor.workitem_id_mode >= at or (at < len(block) and block[at] > 1) for at in range(3)]
        return bool(groups[0]), bool(groups[1] or items[1]), bool(groups[2] or items[2])

    def facts(self) -> list[Term]:
        """Returns facts about symbols that all waves share."""
        info, found = self.inputs.info, []
        for axis in AXES:
            size, count = extent(axis), block_count(axis)
            found += [z3.UGE(size, 1), z3.UGE(count, 1), z3.BitVec(f"hidden_remainder_{axis}", 16) == 0]
            named = (f"block_{axis}", size), (f"grid_{axis}", count)
            found += [term == self._fixed[name] for name, term in named if name in self._fixed]
            found.append(z3.BitVec(f"hidden_global_offset_{axis}", 64) == 0)
            found.append(z3.BitVec(f"grid_size_{axis}", 32) == z3.ZeroExt(16, size) * count)
            found.append(z3.ULE(size, info.max_flat_workgroup_size))
        for name in self.stated:
            term, signed = self.names[name]
            most = MOST_NUMBER.get(term.size(), 0)
            if most:
                found += [term < most, term > -most] if signed else [z3.ULT(term, most)]
        return found

    def whole_facts(self, integers: Integers, about: Set[str]) -> list[Term]:
        """Returns facts about products of these symbols, and the user's assumptions, if they have names of `about` in them."""
        names, extents = self.whole(integers), self._whole_extents(integers)
        symbols = {name: str(term) for name, (term, _) in self.names.items()}
        found = []
        for axis, used in zip(AXES, self.used, strict=True):
            if used and {str(block_count(axis)), str(extent(axis))} & about:
                found.append(extents[f"grid_{axis}"] * extents[f"block_{axis}"] < MOST_ITEMS)
        if sum(self.used) > 1 and not self.block:
            items = math.prod((extents[f"block_{axis}"] for axis in AXES), start=1)
            found.append(items <= self.inputs.info.max_flat_workgroup_size)
        for condition in self.assumptions.conditions:
            if any(symbols[name] in about for name in condition.names()):
                found.append(condition.whole(names))
        for size in {each.text: each for each in self.assumptions.buffers.values()}.values():
            if any(symbols[name] in about for name in size.names()):
                bytes_ = size.whole(names)
                found += [bytes_ >= 0, bytes_ < self.assumptions.most_bytes]
        return found

    def bit_facts(self) -> list[Term]:
        """Returns `whole_facts` as formulas of bit-vectors."""
        names, extents = self.bits(), {name: widen(term, False) for name, term in self.extents.items()}
        found = [extents[f"grid_{axis}"] * extents[f"block_{axis}"] < MOST_ITEMS for axis in AXES]
        found.append(extents["block_x"] * extents["block_y"] * extents["block_z"] <= self.inputs.info.max_flat_workgroup_size)
        found += [each.bits(names) for each in self.assumptions.conditions]
        for size in self.assumptions.buffers.values():
            found += [size.bits(names) >= 0, size.bits(names) < self.assumptions.most_bytes]
        return found

    def wave_facts(self) -> list[Term]:
        """Returns facts about a wave's symbols."""
        lanes = self.inputs.lanes
        found = [*self.inputs.facts(), z3.ULT(lanes.lane, WAVEFRONT)]
        found += [z3.ULT(group_id(axis), block_count(axis)) for axis in AXES]
        found += [item_id(axis, lanes) == 0 for axis, used in zip(AXES, self.used, strict=True) if not used]
        return [*found, bits_of(flat_item(self.inputs), 0, 6) == bits_of(lanes.lane, 0, 6)]


def plain(name: str) -> str:
    """Returns an argument's name as in the source: clang adds a suffix to pointers that it passes as global ones."""
    return name.removesuffix(".coerce")


def flat_item(inputs: KernelInputs) -> Term:
    """Returns a work-item's number in its workgroup, 32 bits."""
    x, y, z = (z3.ZeroExt(22, item_id(axis, inputs.lanes)) for axis in AXES)
    wide, high = (z3.ZeroExt(16, extent(axis)) for axis in "xy")
    return x + wide * (y + high * z)
