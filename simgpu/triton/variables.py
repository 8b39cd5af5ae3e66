"""Compiles Triton kernels with marks: after each assignment, a mark names the registers that hold the variable's elements.

A mark is an `s_nop` as inline assembly, with the registers of an element and of its index in the block as operands. So no layout
has to be known: in each lane, the index identifies the element. The section `SECTION` of the code object has the addresses of the
marks and their words. Marked code has other registers and another schedule, so it is compiled only for the debugger. It has no
software pipelines, because Triton does not pipeline loops of unknown length that contain assembly. (Triton's own
LLVM_EXTRACT_DI_LOCAL_VARIABLES does not compile for AMD's GPUs in Triton 3.8 and 3.9.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest import mock
from weakref import WeakSet

import triton.language as tl
from triton import knobs
from triton.compiler.code_generator import CodeGenerator
from triton.language.semantic import TritonSemantic

from simgpu.debugger.marks import SECTION

KEY = "simgpu variables 2"  # added to the keys of marked code in Triton's cache
_MARK = re.compile(r"^\s*s_nop 0 ; simgpu (.*)$", re.MULTILINE)
_INTEGERS = {1: tl.int1, 8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}  # by their bits


@contextmanager
def mark_kernels() -> Iterator[None]:
    """Makes Triton compile kernels with marks, by which the debugger finds variables."""
    assign, visit = CodeGenerator.assignTarget, CodeGenerator.visit_compound_statement
    begun: WeakSet[CodeGenerator] = WeakSet()
    serial = count()

    def assign_target(generator: Any, target: Any, value: Any) -> None:
        assign(generator, target, value)
        if isinstance(target, ast.Name) and _has_variables(generator):
            _mark(generator, target.id, generator.begin_line + target.lineno, next(serial))

    def visit_statements(generator: Any, statements: Any) -> None:
        if _has_variables(generator):
            loop = generator.scf_stack[-1] if generator.scf_stack else None
            if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and statements is loop.body:
                _mark(generator, loop.target.id, generator.begin_line + loop.lineno, next(serial))
            if generator not in begun:
                begun.add(generator)
                for name in list(generator.lscope):  # the parameters
                    _mark(generator, name, generator.begin_line + 1, next(serial))
        visit(generator, statements)

    ranges = tl.range.__init__

    def set_no_stages(loop: Any, *args: Any, **kwargs: Any) -> None:
        ranges(loop, *args, **kwargs)
        loop.num_stages = None

    with (
        mock.patch.object(tl.range, "__init__", set_no_stages),
        mock.patch.object(CodeGenerator, "assignTarget", assign_target),
        mock.patch.object(CodeGenerator, "visit_compound_statement", visit_statements),
        mock.patch.object(knobs.runtime, "add_stages_inspection_hook", _with_places(knobs.runtime.add_stages_inspection_hook)),
    ):
        yield


def _has_variables(generator: Any) -> bool:
    """True if a function's variables are marked: the kernel's, and those of functions with blocks.

    Triton's library is left out, also functions by which a reduction combines two numbers, and Gluon, whose blocks have
    layouts.
    """
    if type(generator.semantic) is not TritonSemantic or generator.gscope.get("__name__", "").startswith(("triton.", "simgpu.")):
        return False
    return generator.is_kernel or any(isinstance(v, tl.tensor) and v.type.is_block() for v in generator.lscope.values())


def _mark(generator: Any, name: str, line: int, serial: int) -> None:
    """Emits the marks of a variable after its assignment; compile-time constants and tuples have none."""
    value, build = generator.lscope[name], generator.builder
    if not isinstance(value, tl.tensor):
        return
    kind, shape = value.type.scalar, list(value.type.shape) if value.type.is_block() else []

    def type_of(element: Any, extents: list[int]) -> Any:
        return (tl.block_type(element, extents) if extents else element).to_ir(build)

    operands = [_bits(build, value.handle, kind, lambda element: type_of(element, shape))]
    if shape:
        operands.append(_index(build, shape, lambda extents: type_of(tl.int32, extents)))
    owner = "" if generator.is_kernel else f"{generator.jit_fn.__name__}."
    extents = "x".join(map(str, shape)) or "-"
    registers = " ".join(f"${at + 1}" for at in range(len(operands)))
    said = f"{serial} {owner}{name} {str(kind).replace(' ', '')} {extents} {line} {registers}"
    constraints = ",".join(["=v", *("v" for _ in operands)])
    build.create_inline_asm(f"s_nop 0 ; simgpu {said}", constraints, operands, [type_of(tl.int32, shape)], False, 1)


def _bits(build: Any, handle: Any, kind: Any, of: Callable[[Any], Any]) -> Any:
    """Returns a value's bits in integers of 32 or 64, which assembly takes in vector registers."""
    if kind.is_ptr():
        return build.create_ptr_to_int(handle, of(tl.int64))
    width = kind.primitive_bitwidth
    if kind.is_floating():
        handle = build.create_bitcast(handle, of(_INTEGERS[width]))
    return handle if width >= 32 else build.create_int_cast(handle, of(tl.int32), False)


def _index(build: Any, shape: list[int], of: Callable[[list[int]], Any]) -> Any:
    """Returns each element's number in the block, row after row."""
    found, step = None, 1
    for axis in reversed(range(len(shape))):
        numbers = build.create_make_range(of([shape[axis]]), 0, shape[axis])
        if step > 1:
            numbers = build.create_mul(numbers, build.create_splat(of([shape[axis]]), build.get_int32(step)))
        step *= shape[axis]
        for other in range(len(shape)):
            if other != axis:
                numbers = build.create_expand_dims(numbers, other)
        numbers = build.create_broadcast(numbers, shape) if len(shape) > 1 else numbers
        found = numbers if found is None else build.create_add(found, numbers)
    return found


def _with_places(before: Any) -> Callable[..., Any]:
    """Wraps Triton's hook on its stages, for a cache key and for the section of marks; before: the previous hook."""

    def hook(*given: Any) -> Any:
        earlier = before(*given) if before is not None else None
        if not given:
            key, digest = earlier or ("", "")
            return key + KEY, digest + KEY
        backend, stages, options = given[:3]
        made = stages["amdgcn"]
        stages["amdgcn"] = lambda source, metadata: _place_marks(made(source, metadata))
        if "ttir" in stages:  # not Gluon's
            unstaged = replace(options, num_stages=1)
            stages["ttgir"] = lambda source, metadata: backend.make_ttgir(source, metadata, unstaged)
        return earlier

    return hook


def _place_marks(assembly: str) -> str:
    """Returns the assembly with a section of the marks' addresses and words."""
    rows: list[str] = []

    def label(found: re.Match[str]) -> str:
        rows.append(found[1].strip())
        return f".Lsimgpu{len(rows)}:\n\ts_nop 0"

    lines = [_MARK.sub(label, assembly), f'\t.section {SECTION},"",@progbits']
    for number, row in enumerate(rows, 1):
        lines += [f"\t.quad .Lsimgpu{number}", f'\t.asciz "{row}"']
    return "\n".join(lines) + "\n"
