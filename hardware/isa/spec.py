"""What an instruction is: its encoding, opcode, operands and meaning, in one place.

An instruction is one decorated function. The decorator gives the encoding and the opcode, the
annotations give the operand types, the body gives the meaning for one lane in the vocabulary of
`lane`. Decoder, disassembler, simulator, emitter and tests read the resulting `Spec`.

Kinds of body:

* ``lane``: a pure function of its operands, for one lane (VALU) or for the wave (SALU);
* ``wave``: sees whole 64-lane rows and EXEC (v_readlane_b32, ds_bpermute_b32);
* ``memory``: described by a `Memory`; the body, if any, is an atomic's (old, data) -> new;
* ``control``: changes pc or the wave's state; named by `Spec.control`;
* ``matrix``: a row of `simgpu.hardware.mfma`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa.types import Type

BodyKind = Literal["lane", "wave", "memory", "control", "matrix"]
Opcode = int | Mapping[str, int]


@dataclass(frozen=True)
class Param:
    """A source operand (or, with a state type, machine state that is read)."""

    name: str
    type: Type


@dataclass(frozen=True)
class Memory:
    """A memory instruction's description; one routine per space executes it.

    space: ds, flat, global, scratch, buffer, tbuffer or smem; op: load, store or atomic;
    bits: width of one element in memory; count: elements (ds_read2_b32 has 2, dwordx3 has 3);
    sign: sign-extend a narrow load; d16: lo or hi half of the register, or empty;
    stride: scale of the two offsets of ds_read2/write2 (1, or 64 for the st64 forms), else 0;
    lds: load straight to LDS; format: typed buffer access with that many components;
    returns: an atomic that always returns its old value (DS; others by glc/sc0);
    transpose: width of the elements that a transposing LDS load deals out, else 0.
    """

    space: str
    op: str
    bits: int = 32
    count: int = 1
    sign: bool = False
    d16: str = ""
    stride: int = 0
    lds: bool = False
    format: int = 0
    returns: bool = False
    transpose: int = 0


@dataclass(frozen=True, eq=False)
class Spec:
    """One instruction of the set; compared and hashed by identity.

    mnemonic: without encoding suffix (`v_add_f32`, not `v_add_f32_e32`); encoding: the format
    that owns its opcode; opcodes: opcode by target, absent where the target lacks it;
    params, results: operand types in ISA order; flags: classes that hazards, waits, text and
    fidelity read (`trans`, `no_sdwa`, `no_dpp`, `bounded`, `vop3_only`, ...).
    """

    mnemonic: str
    encoding: str
    opcodes: Mapping[str, int]
    params: tuple[Param, ...]
    results: tuple[Type, ...]
    kind: BodyKind
    body: Callable[..., Any] | None = None
    memory: Memory | None = None
    control: str = ""
    flags: frozenset[str] = frozenset()
    doc: str = ""

    def __repr__(self) -> str:
        return f"<{self.encoding} {self.mnemonic}>"


@dataclass
class Registry:
    """The specs in definition order; frozen into per-target tables when the package has loaded."""

    specs: list[Spec] = field(default_factory=list)

    def add(self, spec: Spec) -> None:
        self.specs.append(spec)


REGISTRY = Registry()


def opcode_map(opcode: Opcode, targets: Iterable[str]) -> dict[str, int]:
    """Opcode by target: one number for all of `targets`, or a mapping as given."""
    if isinstance(opcode, int):
        return {target: opcode for target in targets}
    return dict(opcode)


def signature(function: Callable[..., Any]) -> tuple[tuple[Param, ...], tuple[Type, ...]]:
    """Parameters and results of a body, from its annotations (evaluated `Type` objects)."""
    sig = inspect.signature(function, eval_str=True)
    params = tuple(Param(p.name, p.annotation) for p in sig.parameters.values())
    returned = sig.return_annotation
    if returned is None or returned is inspect.Signature.empty:
        return params, ()
    return params, tuple(returned) if isinstance(returned, tuple) else (returned,)


def define(
    encoding: str,
    opcode: Opcode,
    *,
    targets: Iterable[str] = TARGETS,
    kind: BodyKind = "lane",
    memory: Memory | None = None,
    control: str = "",
    flags: Iterable[str] = (),
    name: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: registers the decorated body as the instruction of that name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        params, results = signature(function)
        doc = (function.__doc__ or "").strip()
        REGISTRY.add(
            Spec(
                name or function.__name__,
                encoding,
                opcode_map(opcode, targets),
                params,
                results,
                kind,
                function,
                memory,
                control,
                frozenset(flags),
                doc,
            )
        )
        return function

    return register
