"""Descriptions of instructions: encoding, opcode, operands and meaning.

Most instructions are a decorated function. The decorator gives encoding and opcode, the annotations give the
operand types, and the body gives the meaning for one lane in the operations of `lane`. Decoder, disassembler, simulator,
emitter and tests read the resulting `Spec`.

Kinds of body:

* ``lane``: a pure function of its operands, for one lane (VALU) or for the wave (SALU);
* ``wave``: sees whole 64-lane rows and EXEC (v_readlane_b32, ds_bpermute_b32);
* ``memory``: described by a `Memory`; the body, if any, is an atomic's (old, data) -> new;
* ``control``: changes pc or the wave's state, by `Spec.control`;
* ``matrix``: a row of `simgpu.hardware.mfma`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa.kinds import BodyKind, ControlKind, Encoding, Flag, Operation, Space
from simgpu.hardware.isa.types import Type

Opcode = int | Mapping[str, int]
_CONTROL_KINDS, _FLAGS = tuple(ControlKind), tuple(Flag)  # made once: more than a thousand instructions use them


@dataclass(frozen=True)
class Param:
    """A parameter of a body: a source operand, machine state that is read, or a modifier."""

    name: str
    type: Type


@dataclass(frozen=True)
class Memory:
    """Description of a memory instruction."""

    space: Space
    op: Operation
    bits: int = 32  # of one element in memory
    count: int = 1  # elements: ds_read2_b32 has 2, dwordx3 has 3
    sign: bool = False  # True if a narrow load extends the sign
    d16: Literal["", "lo", "hi"] = ""  # the half of the register for a 16-bit access
    stride: int = 0  # scale of the two offsets of ds_read2 and ds_write2: 1, or 64 for the st64 forms
    lds: bool = False  # True if it transfers between memory and LDS, without registers
    format: int = 0  # components of a typed buffer access
    returns: bool = False  # a DS atomic returns the old value; in other spaces glc or sc0 decides
    transpose: int = 0  # bits of the elements that a transposing LDS load distributes


@dataclass(frozen=True, eq=False)
class Spec:
    """Description of an instruction; compared and hashed by identity."""

    mnemonic: str  # without encoding suffix: `v_add_f32`, not `v_add_f32_e32`
    encoding: Encoding  # the format that its opcode belongs to
    opcodes: Mapping[str, int]  # by target; only targets that have the instruction
    params: tuple[Param, ...]  # of the body, in order
    results: tuple[Type, ...]  # of the body, in order
    kind: BodyKind
    body: Callable[..., Any] | None = None
    memory: Memory | None = None
    control: ControlKind = ControlKind.NONE
    flags: frozenset[Flag] = frozenset()

    def __repr__(self) -> str:
        return f"<{self.encoding} {self.mnemonic}>"


@dataclass
class Registry:
    """Specs in definition order; `code.decode.table` arranges them by opcode."""

    specs: list[Spec] = field(default_factory=list)

    def add(self, spec: Spec) -> None:
        self.specs.append(spec)


REGISTRY = Registry()


def signature(function: Callable[..., Any]) -> tuple[tuple[Param, ...], tuple[Type, ...]]:
    """Returns parameters and result types of a body, from its annotations."""
    names, code = function.__globals__, function.__code__
    types = {name: _value_of(given, names) for name, given in function.__annotations__.items()}
    params = tuple(Param(name, types[name]) for name in code.co_varnames[: code.co_argcount])
    returned = types.get("return")
    if returned is None:
        return params, ()
    return params, tuple(returned) if isinstance(returned, tuple) else (returned,)


def _value_of(annotation: Any, names: dict[str, Any]) -> Any:
    """Returns the value of an annotation in a module. Most are names, which `eval` would compile more than a thousand times."""
    if not isinstance(annotation, str):
        return annotation
    return names[annotation] if annotation in names else eval(annotation, names)


def define(
    encoding: Encoding,
    opcode: Opcode,
    *,
    targets: Iterable[str] = TARGETS,
    kind: BodyKind = "lane",
    control: str = ControlKind.NONE,
    flags: Iterable[str] = (),
    name: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a body as an instruction with the function's name, or `name`.

    With a `control`, the instruction's kind is control, whatever `kind` is.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        add(encoding, name or function.__name__, opcode, function, targets=targets, kind=kind, control=control, flags=flags)
        return function

    return register


def row(
    encoding: Encoding,
    mnemonic: str,
    opcode: Opcode,
    memory: Memory | None,
    body: Callable[..., Any] | None = None,
    *,
    targets: Iterable[str] = TARGETS,
    control: str = ControlKind.NONE,
    flags: Iterable[str] = (),
) -> None:
    """Registers a memory instruction, or with a `control` one of kind control.

    body: an atomic's (old, data, ...) -> new; its annotations are the types in memory.
    """
    add(encoding, mnemonic, opcode, body, targets=targets, kind="memory", memory=memory, control=control, flags=flags)


def add(
    encoding: Encoding,
    mnemonic: str,
    opcode: Opcode,
    body: Callable[..., Any] | None,
    *,
    targets: Iterable[str],
    kind: BodyKind,
    memory: Memory | None = None,
    control: str,
    flags: Iterable[str],
) -> None:
    """Registers an instruction. Raises ValueError for an unknown target, control kind or flag."""
    params, results = signature(body) if body else ((), ())
    opcodes = dict.fromkeys(targets, opcode) if isinstance(opcode, int) else dict(opcode)
    for target in opcodes:
        _check_name(mnemonic, "target", target, TARGETS)
    REGISTRY.add(
        Spec(
            mnemonic=mnemonic,
            encoding=encoding,
            opcodes=opcodes,
            params=params,
            results=results,
            kind="control" if control else kind,
            body=body,
            memory=memory,
            control=ControlKind(_check_name(mnemonic, "control kind", control, _CONTROL_KINDS)),
            flags=frozenset(Flag(_check_name(mnemonic, "flag", flag, _FLAGS)) for flag in flags),
        )
    )


def _check_name(mnemonic: str, what: str, name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=3) or filter(None, names)
    raise ValueError(f"{mnemonic}: there is no {what} {name!r}: use {', '.join(near)}")
