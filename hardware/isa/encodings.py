"""One thin decorator per encoding: `@vop2(1)`, `@sop1({"gfx942": 5, "gfx950": 5})`.

Each takes the opcode (one number, or a mapping by target) and the keywords of `spec.define`:
`targets`, `kind`, `memory`, `control`, `flags`, `name`. The function under it is the instruction.
A memory instruction without a body of its own is a `row`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa.spec import REGISTRY, Memory, Opcode, Spec, define, opcode_map, signature

Decorator = Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]

sop1: Decorator = partial(define, "sop1")
sop2: Decorator = partial(define, "sop2")
sopk: Decorator = partial(define, "sopk")
sopc: Decorator = partial(define, "sopc")
sopp: Decorator = partial(define, "sopp")
smem: Decorator = partial(define, "smem")
vop1: Decorator = partial(define, "vop1")
vop2: Decorator = partial(define, "vop2")
vopc: Decorator = partial(define, "vopc")
vop3: Decorator = partial(define, "vop3")
vop3p: Decorator = partial(define, "vop3p")
mai: Decorator = partial(define, "mai")
ds: Decorator = partial(define, "ds")
flat: Decorator = partial(define, "flat")
global_: Decorator = partial(define, "flat")
scratch: Decorator = partial(define, "flat")
mubuf: Decorator = partial(define, "mubuf")
mtbuf: Decorator = partial(define, "mtbuf")


def row(
    encoding: str,
    mnemonic: str,
    opcode: Opcode,
    memory: Memory | None,
    body: Callable[..., Any] | None = None,
    *,
    targets: Iterable[str] = TARGETS,
    control: str = "",
    flags: Iterable[str] = (),
) -> None:
    """Registers one line of a table: a memory instruction, or one that `control` names.

    body: an atomic's (old, data, ...) -> new; its annotations are the types in memory.
    """
    params, results = signature(body) if body else ((), ())
    REGISTRY.add(
        Spec(
            mnemonic,
            encoding,
            opcode_map(opcode, targets),
            params,
            results,
            "control" if control else "memory",
            body,
            memory,
            control,
            frozenset(flags),
            (body.__doc__ or "").strip() if body else "",
        )
    )
