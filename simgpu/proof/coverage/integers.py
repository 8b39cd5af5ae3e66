"""Integer instructions on sums: numbers by the instructions' bodies, sums of a launch's numbers where they are linear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simgpu.hardware.isa import lane_numpy
from simgpu.hardware.isa.spec import Spec
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.values import Test

Forms = Sequence[Form]


def _by(power: Form) -> int | None:
    value = power.constant
    return None if value is None or np.ndim(value) or not 0 <= value < 32 else 1 << int(value)


def _shift(value: Form, power: Form) -> Form | None:
    factor = _by(power)
    return None if factor is None else value.times(factor)


def _product(a: Form, b: Form) -> Form | None:
    for one, other in ((a, b), (b, a)):
        if one.constant is not None:
            return other.times(one.constant)
    return None


def _mask(a: Form, b: Form) -> Form | None:
    """Returns the low bits of a sum whose names have factors that do not reach them."""
    for value, mask in ((a, b), (b, a)):
        bits = mask.constant
        if bits is None or np.ndim(bits) or bits < 0 or bits & bits + 1:
            continue
        rest = value.modulo(int(bits).bit_length()) if bits else Form()
        if rest.constant is not None:
            return Form.of(np.asarray(rest.constant) & int(bits))
    return None


def _least(a: Form, b: Form) -> Form | None:
    """Returns the least of a number and of multiples of it where these are above 0: elsewhere, nothing is left to load."""
    for one, other in ((a, b), (b, a)):
        value = one.constant
        if value is not None and not np.ndim(value) and value > 0 and other.constant is None and other.quotient(int(value)):
            return one
    return None


def _plus(a: Form | None, b: Form) -> Form | None:
    return None if a is None else a + b


LINEAR: dict[str, Callable[..., Form | None]] = {
    "add_u32": lambda a, b: a + b, "add_i32": lambda a, b: a + b, "add_co_u32": lambda a, b: a + b,
    "sub_u32": lambda a, b: a - b, "sub_i32": lambda a, b: a - b, "sub_co_u32": lambda a, b: a - b,
    "subrev_u32": lambda a, b: b - a, "add3_u32": lambda a, b, c: a + b + c, "mov_b32": lambda a: a,
    "lshl_b32": _shift, "lshlrev_b32": lambda power, value: _shift(value, power),
    "lshl_add_u32": lambda value, power, more: _plus(_shift(value, power), more),
    "add_lshl_u32": lambda a, b, power: _shift(a + b, power),
    "mul_i32": _product, "mul_lo_u32": _product, "mul_u32_u24": _product, "mul_i32_i24": _product,
    "mad_u32_u24": lambda a, b, c: _plus(_product(a, b), c), "mad_i32_i24": lambda a, b, c: _plus(_product(a, b), c),
    "and_b32": _mask, "min_i32": _least,
}  # fmt: skip
# Comparisons of the scalar ALU: operands that are exchanged, whether 1 is subtracted, whether it is negated.
ORDERS = {"ge": (False, 0), "le": (True, 0), "gt": (False, 1), "lt": (True, 1)}


def compute(spec: Spec, forms: Forms) -> Form | None:
    """Returns an instruction's first result for operands that are sums; None if it is no sum."""
    params = [param for param in spec.params if param.type.state != "modifier"]
    plain = spec.kind == "lane" and all(param.type.state in ("", "sgpr") and param.type.bits == 32 for param in params)
    values = [form.constant for form in forms]
    if plain and spec.body is not None and len(params) == len(forms) and all(value is not None for value in values):
        arrays = [np.asarray(np.asarray(value, np.int64) & 0xFFFFFFFF, np.uint32) for value in values]
        modifiers = {param.name: 0 for param in spec.params if param.type.state == "modifier"}
        with np.errstate(all="ignore"):
            made = lane_numpy.evaluate(spec, *np.broadcast_arrays(*arrays), **modifiers)
        first: Any = made[0] if isinstance(made, tuple) else made
        if np.asarray(first).dtype == np.uint32:
            value = np.asarray(first).astype(np.int64)
            return Form.of(int(value) if not value.ndim else value).modulo(32)
        return None
    rule = LINEAR.get(spec.mnemonic.partition("_")[2])
    found = rule(*forms) if rule is not None else None
    return None if found is None else found.modulo(32)


def compare(mnemonic: str, a: Form, b: Form) -> Test | None:
    """Returns the condition of s_cmp_* or v_cmp_*; unsigned orders are known for numbers only."""
    _, _, order, kind = mnemonic.split("_")
    if order in ("eq", "lg", "ne"):
        return Test((a - b).modulo(32), equal=True, negated=order != "eq")
    if order not in ORDERS:
        return None
    if kind == "u32":
        if a.constant is None or b.constant is None:
            return None
        a, b = (Form.of(np.asarray(each.constant) & 0xFFFFFFFF) for each in (a, b))
    exchanged, less = ORDERS[order]
    left = b - a if exchanged else a - b
    return Test(left - Form.of(less))
