"""Translates a function's syntax tree to LLVM IR, statement by statement; LLVM moves variables from memory to registers.

Integers are i64 and wrap. // and % round down, as Python's do, and give 0 if the divisor is 0. Code without a translation
raises `NotTranslated` with the line.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.runtime import places
from simgpu.machine.runtime.expressions import Expressions
from simgpu.machine.runtime.places import PTR, Array, NotTranslated, StructRecord, number, pieces, shape
from simgpu.machine.runtime.source import Part
from simgpu.machine.values import I1, I64, Builder, IrValue

SELDOM = ("noinline", "optsize")  # of a part that is rarely called: inlined, it would be optimised with each caller
SMALL = 70  # most instructions of a function that is inlined at every call; a larger one is inlined if there is one call


class Translation:
    """Translates the functions of one module, each once for each combination of forms of its arguments."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self._made: dict[Any, tuple[ir.Function, Any]] = {}

    def entry(self, part: Part, name: str, parameters: int, returns: bool) -> None:
        """Defines the part as a function `name` of i64 that others may call."""
        kind = ir.FunctionType(I64 if returns else ir.VoidType(), [I64] * parameters)
        function = ir.Function(self.module, kind, name)
        build = Builder(function.append_basic_block())
        result = self.call(build, build, part, [IrValue(build, argument) for argument in function.args])
        if returns:
            build.ret(_integer(build, part, result))
        else:
            build.ret_void()
        self._choose_inlined()

    def entry_of_words(self, part: Part, name: str, forms: Sequence[Any]) -> None:
        """Defines the part as a function `name` of the address of its arguments' 64-bit words. It returns an i64, 0 for nothing."""
        function = ir.Function(self.module, ir.FunctionType(I64, [PTR]), name)
        build = Builder(function.append_basic_block())
        words = IrValue(build, function.args[0])
        kinds = [kind for form in forms for kind in places.types(form)]
        loaded = iter([words.at(8 * at).load(kind, 8) for at, kind in enumerate(kinds)])
        result = self.call(build, build, part, [places.assemble(form, loaded) for form in forms])
        build.ret(_integer(build, part, 0 if result is None else result))
        self._choose_inlined()

    def _choose_inlined(self) -> None:
        """Chooses the functions that LLVM inlines."""
        instructions = [one for function in self.module.functions for block in function.blocks for one in block.instructions]
        calls = Counter(one.callee.name for one in instructions if isinstance(one, ir.CallInstr))
        for function, _ in self._made.values():
            small = sum(len(block.instructions) for block in function.blocks) <= SMALL
            if "noinline" not in function.attributes and (small or calls[function.name] == 1):
                function.attributes.add("alwaysinline")

    def call(self, build: Builder, entry: Builder, part: Part, arguments: Sequence[Any]) -> Any:
        """Emits a call; returns its result. entry: the block of the caller's stack slots."""
        key = part, tuple(map(shape, arguments))
        if key not in self._made:
            self._made[key] = _Body(self, part, key[1]).emit()
        function, form = self._made[key]
        given = [piece for argument in arguments for piece in pieces(build, argument)]
        kinds = places.types(form) if form is not None else []
        slots = [entry.alloca(kind) for kind in kinds]
        build.call(function, [*given, *slots])
        loaded = [build.load(slot, typ=kind) for slot, kind in zip(slots, kinds, strict=True)]
        return places.assemble(form, iter(loaded)) if form is not None else None

    def function(self, part: Part, kinds: Sequence[ir.Type]) -> ir.Function:
        """Creates an internal function with these parameters."""
        name = self.module.get_unique_name(f"{part.function.__module__}.{part.function.__qualname__}")
        made = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        made.linkage = "internal"
        for attribute in ("nounwind", *(SELDOM if part.seldom else ())):
            made.attributes.add(attribute)
        return made


def _integer(build: Builder, part: Part, result: Any) -> IrValue:
    """Returns the integer that the entry of a module returns."""
    try:
        return number(build, result)
    except NotTranslated as error:
        raise NotTranslated(f"{part.function.__code__.co_filename}:{part.tree.lineno}: its result {error}") from None


class _Body(Expressions):
    """A function under translation, for arguments of given forms."""

    def __init__(self, translation: Translation, part: Part, forms: Sequence[Any]) -> None:
        self.translation, self.module = translation, translation.module
        self.part = part
        self.forms = forms
        self.variables: dict[str, tuple[Any, list[Any]]] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []  # targets of continue and break
        self.node: ast.AST = part.tree  # the current node, for errors
        self.choices = itertools.count()

    def emit(self) -> tuple[ir.Function, Any]:
        """Returns the function, and the form of its result, None for nothing."""
        try:
            return self._emit()
        except (NotTranslated, TypeError, AttributeError, ValueError) as error:
            if getattr(error, "placed", False):
                raise
            line = getattr(self.node, "lineno", self.part.tree.lineno)
            told = NotTranslated(f"{self.part.function.__code__.co_filename}:{line}: {error}")
            told.placed = True  # type: ignore[attr-defined]
            raise told from error

    def _emit(self) -> tuple[ir.Function, Any]:
        tree = self.part.tree
        made = self.translation.function(self.part, [kind for one in self.forms for kind in places.types(one)])
        self.made = made
        self.results: Sequence[Any] = ()
        self.returns: Any = None
        self.entry = Builder(made.append_basic_block("entry"))
        self.build = Builder(made.append_basic_block("body"))
        arguments = iter([IrValue(self.build, argument) for argument in made.args])
        for argument, one in zip(tree.args.args, self.forms, strict=True):
            self.assign(argument.arg, places.assemble(one, arguments))
        self.block(tree.body)
        if not self.build.block.is_terminated:
            self.build.ret_void()
        self.entry.branch(made.blocks[1])
        return made, self.returns

    def _take_results(self, form: Any) -> None:
        """Adds parameters for the results: their form is known when the first return is translated."""
        self.returns = form
        kinds = [PTR] * len(places.types(form))
        self.made.ftype.args = (*self.made.ftype.args, *kinds)
        self.results = [ir.Argument(self.made, kind) for kind in kinds]
        self.made.args = (*self.made.args, *self.results)

    def call(self, part: Part, arguments: Sequence[Any]) -> Any:
        return self.translation.call(self.build, self.entry, part, arguments)

    # -- variables ---------------------------------------------------------------------------------

    def assign(self, name: str, value: Any) -> None:
        form, given = shape(value), pieces(self.build, value)
        if name not in self.variables:
            self.variables[name] = form, [self.entry.alloca(kind) for kind in places.types(form)]
        known, slots = self.variables[name]
        if known != form:
            raise NotTranslated(f"{name} was something else before")
        for piece, slot in zip(given, slots, strict=True):
            self.build.store(piece, slot)

    def read(self, name: str) -> Any:
        if name not in self.variables:
            return self.part.global_value(name)
        form, slots = self.variables[name]
        loaded = (self.build.load(slot, typ=kind) for slot, kind in zip(slots, places.types(form), strict=True))
        return places.assemble(form, loaded)

    # -- statements --------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.build.block.is_terminated:
                return
            self.node = statement
            self.method("do", statement)(statement)

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # skips a docstring
            self.value(node.value)

    def do_Pass(self, node: ast.Pass) -> None:
        """Emits nothing."""

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.put(target, value)

    def put(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise NotTranslated(f"`{ast.unparse(target)}` takes a tuple of {len(target.elts)}")
            for one, piece in zip(target.elts, value, strict=True):
                self.put(one, piece)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            self.fill(self.value(target), value)
        else:
            places.store(*self.place(target), value)

    def fill(self, array: Array, value: Any) -> None:
        """Gives all elements of an array a value."""
        def body(at: IrValue) -> None:
            places.store(*array.at(at), value)

        self.count(number(self.build, 0), array.size, 1, body)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.assign(node.target.id, self.binary(node.op, self.read(node.target.id), self.value(node.value)))
        else:
            kind, pointer = self.place(node.target)
            places.store(kind, pointer, self.binary(node.op, places.load(kind, pointer), self.value(node.value)))

    def place(self, node: ast.expr) -> tuple[np.dtype, IrValue]:
        """Returns the dtype and the address of an element or a field."""
        owner = self.value(node.value) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        if isinstance(node, ast.Attribute) and isinstance(owner, StructRecord):
            return owner.field(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(owner, Array):
            return owner.at(self.value(node.slice))
        raise NotTranslated(f"`{ast.unparse(node)}` has no place in memory")

    def do_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            value = self.value(node.value)
            if self.returns is None:
                self._take_results(shape(value))
            if self.returns != shape(value):
                raise NotTranslated("it returned something else before")
            for slot, piece in zip(self.results, pieces(self.build, value), strict=True):
                self.build.store(piece, slot)
        self.build.ret_void()

    def do_If(self, node: ast.If) -> None:
        self.choose(self.truth(node.test), lambda: self.block(node.body), lambda: self.block(node.orelse))

    def choose(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        if isinstance(test, bool):
            (then if test else otherwise)()
            return
        build = self.build
        first, second, after = (build.append_basic_block(name) for name in ("then", "else", "after"))
        build.cbranch(test, first, second)
        for block, body in ((first, then), (second, otherwise)):
            build.position_at_end(block)
            body()
            if not build.block.is_terminated:
                build.branch(after)
        build.position_at_end(after)

    def do_While(self, node: ast.While) -> None:
        build = self.build
        head, body, after = (build.append_basic_block(name) for name in ("while", "do", "after"))
        build.branch(head)
        build.position_at_end(head)
        test = self.truth(node.test)
        build.cbranch(ir.Constant(I1, int(test)) if isinstance(test, bool) else test, body, after)
        self.emit_loop_body(body, head, after, lambda: self.block(node.body))

    def emit_loop_body(self, body: ir.Block, again: ir.Block, after: ir.Block, emit: Callable[[], Any]) -> None:
        """Emits the body of a loop; `again` is the target of continue, `after` of break."""
        self.loops.append((again, after))
        self.build.position_at_end(body)
        emit()
        if not self.build.block.is_terminated:
            self.build.branch(again)
        self.loops.pop()
        self.build.position_at_end(after)

    def do_Continue(self, node: ast.Continue) -> None:
        self.build.branch(self.loops[-1][0])

    def do_Break(self, node: ast.Break) -> None:
        self.build.branch(self.loops[-1][1])

    def do_For(self, node: ast.For) -> None:
        def body(value: Any) -> None:
            self.put(node.target, value)
            self.block(node.body)

        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("range", "enumerate") and isinstance(node.iter, ast.Call):
            given = [self.value(one) for one in node.iter.args]
            if called.id == "range":
                first, end, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
                self.count(number(self.build, first), end, step, body)
            else:
                self.for_each(given[0], lambda at, value: body((at, value)))
        else:
            self.for_each(self.value(node.iter), lambda at, value: body(value))

    def for_each(self, values: Any, body: Callable[[Any, Any], None]) -> None:
        """Calls body(number, value) for each element of an array or a tuple."""
        if isinstance(values, Array):
            self.count(number(self.build, 0), values.size, 1, lambda at: body(at, places.load(*values.at(at))))
            return
        if not isinstance(values, tuple):
            raise NotTranslated("a loop goes over a range, an array or a tuple")
        after = self.build.append_basic_block("after")
        for at, value in enumerate(values):
            following = self.build.append_basic_block("next")
            here = self.build.append_basic_block("each")
            self.build.branch(here)
            self.emit_loop_body(here, following, after, functools.partial(body, at, value))
            self.build.position_at_end(following)
        self.build.branch(after)
        self.build.position_at_end(after)

    def count(self, first: IrValue, end: Any, step: Any, body: Callable[[IrValue], Any]) -> None:
        """Emits body(number) for the numbers of a range; an unknown step must be above 0."""
        build, limit = self.build, number(self.build, end)
        counter = self.entry.alloca(I64)
        build.store(first, counter)
        head, each, again, after = (build.append_basic_block(name) for name in ("range", "each", "step", "after"))
        build.branch(head)
        build.position_at_end(head)
        at = build.load(counter, typ=I64)
        build.cbranch(at.signed > limit if isinstance(step, int) and step < 0 else at.signed < limit, each, after)
        self.emit_loop_body(each, again, after, lambda: body(at))
        build.position_at_end(again)
        build.store(at + step, counter)
        build.branch(head)
        build.position_at_end(after)
