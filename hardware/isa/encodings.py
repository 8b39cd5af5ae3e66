"""A decorator for each encoding: `@vop2(1)`, `@sop1({"gfx942": 5, "gfx950": 5})`.

Arguments are the opcode (one number, or a mapping by target) and the keywords of `spec.define`:
`targets`, `kind`, `control`, `flags`, `name`. The decorated function is the instruction's body.
Memory instructions, most of which have no body, are registered by `spec.row`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from simgpu.hardware.isa.spec import define

Decorator = Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]

sop1: Decorator = partial(define, "sop1")
sop2: Decorator = partial(define, "sop2")
sopk: Decorator = partial(define, "sopk")
sopc: Decorator = partial(define, "sopc")
sopp: Decorator = partial(define, "sopp")
vop1: Decorator = partial(define, "vop1")
vop2: Decorator = partial(define, "vop2")
vopc: Decorator = partial(define, "vopc")
vop3: Decorator = partial(define, "vop3")
vop3p: Decorator = partial(define, "vop3p")
mai: Decorator = partial(define, "mai")
ds: Decorator = partial(define, "ds")
