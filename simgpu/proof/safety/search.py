"""A launch in which a kernel leaves a buffer or has a race, found by the solver and confirmed by checked mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import z3

from simgpu.device import Device
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import SimError
from simgpu.proof.entry import AXES, argument_symbol
from simgpu.proof.roots import POINTER
from simgpu.proof.safety.claims import Claims, UnprovedClaim
from simgpu.proof.safety.launches import block_count, extent
from simgpu.proof.safety.sizes import BadAssumption
from simgpu.proof.solver import Budget, solve

Term = Any
SCOPES = (24, 300, 5000)  # the largest numbers of a launch's arguments, tried in this order
MOST_GROUPS = 6  # in a dimension of its grid
SEARCH_EFFORT = 10.0  # of the solver for a scope
MOST_INSTRUCTIONS = 20_000_000  # of a confirming run
MOST_BYTES = 1 << 28  # of a launch's buffers


@dataclass(frozen=True)
class UnsafeLaunch:
    """A launch in which checked mode finds the fault."""

    arguments: tuple[np.ndarray | bytes, ...]  # buffers as bytes, and values
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    finding: Finding
    dynamic_lds: int = 0


def find(code: CodeObject, claims: Claims, doubt: UnprovedClaim, budget: Budget) -> UnsafeLaunch | None:
    """Returns a confirmed launch in which a doubt is right; None if none was found."""
    for model in _models(claims, doubt, budget):
        found = _confirm(code, claims, doubt, model)
        if found is not None:
            return found
    return None


def _models(claims: Claims, doubt: UnprovedClaim, budget: Budget) -> Iterator[Any]:
    launches = claims.launches
    known = [*claims.prover.formulas_of(claims.facts_of(doubt)), *launches.bit_facts()]
    for index, argument in enumerate(claims.inputs.info.explicit_arguments):
        if argument.is_pointer:
            known.append(argument_symbol(index, argument) == (index + 1) << 40)
    known += [z3.ULE(block_count(axis), MOST_GROUPS) for axis in AXES]
    for scope in SCOPES:
        small = [z3.And(term <= scope, term >= -scope if signed else term >= 0) for term, signed in launches.names.values()]
        formulas = [*doubt.wrong, *known, *(small if scope else ())]
        result, model = solve([*formulas, *claims.inputs.lanes.facts(formulas)], budget, SEARCH_EFFORT)
        if result == z3.sat:
            yield model


def _confirm(code: CodeObject, claims: Claims, doubt: UnprovedClaim, model: Any) -> UnsafeLaunch | None:
    info, launches = claims.inputs.info, claims.launches
    names = {name: _value(model, term, signed) for name, (term, signed) in launches.names.items()}
    arguments: list[np.ndarray | bytes] = []
    for index, argument in enumerate(info.explicit_arguments):
        if argument.is_pointer:
            size = launches.size(f"{POINTER}{index}")
            try:
                count = size.value(names) if size is not None else 1 << 20
            except BadAssumption:  # it divides by a number that is 0 in this launch
                return None
            if not 0 <= count <= MOST_BYTES:
                return None
            arguments.append(_content(claims, model, index, count))
        else:
            arguments.append(_value(model, argument_symbol(index, argument), False).to_bytes(argument.size, "little"))
    block, grid = (tuple(_value(model, of(axis), False) for axis in AXES) for of in (extent, block_count))
    finding = _finding(code, claims, doubt, arguments, block, grid)
    if finding is None:
        return None
    lds = launches.assumptions.dynamic_lds
    return UnsafeLaunch(tuple(arguments), block, grid, finding, lds)  # type: ignore[arg-type]


def _content(claims: Claims, model: Any, index: int, size: int) -> np.ndarray:
    """Returns a buffer with the values that the model's accesses load."""
    content = np.zeros(size, np.uint8)
    start = _value(model, argument_symbol(index, claims.inputs.info.explicit_arguments[index]), False)
    for access in claims.accesses:
        if access.value is None or access.address.base != f"{POINTER}{index}":
            continue
        if z3.is_true(model.eval(access.guard, model_completion=True)):
            at = _value(model, access.address.at(), False) - start
            if 0 <= at <= size - access.size:
                raw = _value(model, access.value, False).to_bytes(access.size, "little")
                content[at : at + access.size] = np.frombuffer(raw, np.uint8)
    return content


def _value(model: Any, term: Term, signed: bool) -> int:
    value = model.eval(term, model_completion=True)
    return int(value.as_signed_long() if signed else value.as_long())


def _finding(code: CodeObject, claims: Claims, doubt: UnprovedClaim, arguments: Any, block: Any, grid: Any) -> Finding | None:
    """Returns the finding of the doubt's kind in a launch, in checked mode."""
    device = Device(code.target, check=True, max_instructions=MOST_INSTRUCTIONS)
    given = [device.upload(value) if isinstance(value, np.ndarray) else value for value in arguments]
    kernel = device.load(code.data)[claims.inputs.info.name]
    try:
        lds = claims.launches.assumptions.dynamic_lds
        findings = kernel.launch(grid=grid, block=block, args=given, dynamic_lds=lds).findings
    except SimError as error:
        findings = getattr(error, "findings", [])
    return next((each for each in findings if each.kind == doubt.kind), None)
