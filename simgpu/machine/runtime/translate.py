"""A function's syntax tree to LLVM IR: statements one after the other, variables in memory that LLVM puts into registers.

Integers are i64 and wrap; // and % round down, as Python's do, and give 0 where the divisor is 0. What has no translation raises
`NotTranslated` with the line: nothing is guessed.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine.runtime import places
from simgpu.machine.runtime.places import PTR, Array, Builtin, NotTranslated, Record, number, pieces, shape, truth
from simgpu.machine.values import I1, I64, Builder, Value, smax, smin, where

SAME: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
COMPARED: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)


@functools.cache
def _definitions(path: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by their first lines, decorators included."""
    found = (node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.FunctionDef))
    return {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node for node in found}


class Part:
    """A function that is translated where another calls it; Python runs it as it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    @property
    def tree(self) -> ast.FunctionDef:
        code = self.function.__code__
        return _definitions(code.co_filename)[code.co_firstlineno]

    def outside(self, name: str) -> Any:
        """What a name of no variable stands for."""
        function = self.function
        enclosing = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name in enclosing:
            return enclosing[name].cell_contents
        if name not in function.__globals__ and not hasattr(builtins, name):
            raise NotTranslated(f"{name} has no value")
        return function.__globals__[name] if name in function.__globals__ else getattr(builtins, name)


class Translation:
    """The functions of one module: each once for the shapes of its arguments."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self._made: dict[Any, tuple[ir.Function, Any]] = {}

    def entry(self, part: Part, name: str, parameters: int, returns: bool) -> None:
        """The part as a function `name` of i64 that others may call."""
        kind = ir.FunctionType(I64 if returns else ir.VoidType(), [I64] * parameters)
        function = ir.Function(self.module, kind, name)
        build = Builder(function.append_basic_block())
        result = self.call(build, build, part, [Value(build, argument) for argument in function.args])
        if returns:
            build.ret(number(build, result))
        else:
            build.ret_void()

    def call(self, build: Builder, entry: Builder, part: Part, arguments: Sequence[Any]) -> Any:
        """Emit a call; entry: where the caller's stack slots are made."""
        key = part, tuple(map(shape, arguments))
        if key not in self._made:
            self._made[key] = _Body(self, part, key[1]).emit()
        function, form = self._made[key]
        given = [piece for argument in arguments for piece in pieces(build, argument)]
        kinds = places.types(form) if form is not None else []
        slots = [entry.alloca(kind) for kind in kinds]
        build.call(function, [*given, *slots])
        loaded = [build.load(slot, typ=kind) for slot, kind in zip(slots, kinds, strict=True)]
        return places.whole(form, iter(loaded)) if form is not None else None

    def function(self, part: Part, kinds: Sequence[ir.Type]) -> ir.Function:
        """A new internal function of those parameters."""
        name = self.module.get_unique_name(f"{part.function.__module__}.{part.function.__qualname__}")
        made = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        made.linkage = "internal"
        made.attributes.add("nounwind")
        return made


class _Body:
    """One function under translation, for arguments of some shapes."""

    def __init__(self, translation: Translation, part: Part, forms: Sequence[Any]) -> None:
        self.translation = translation
        self.part = part
        self.forms = forms
        self.variables: dict[str, tuple[Any, list[Any]]] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []  # where continue and break lead
        self.node: ast.AST = part.tree  # what is translated, for errors
        self.choices = itertools.count()

    def emit(self) -> tuple[ir.Function, Any]:
        """The function, and the shape of what it returns, None for nothing."""
        try:
            return self._emitted()
        except (NotTranslated, TypeError, AttributeError, ValueError) as error:
            if getattr(error, "placed", False):
                raise
            line = getattr(self.node, "lineno", self.part.tree.lineno)
            told = NotTranslated(f"{self.part.function.__code__.co_filename}:{line}: {error}")
            told.placed = True  # type: ignore[attr-defined]
            raise told from error

    def _emitted(self) -> tuple[ir.Function, Any]:
        tree = self.part.tree
        returned = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
        form, made = None, None
        # What it returns is known when its first return is translated, and its parameters must be known before.
        for _ in range(2 if returned else 1):
            given = [kind for one in self.forms for kind in places.types(one)]
            kinds: list[ir.Type] = places.types(form) if form is not None else []
            if made is not None:
                del self.translation.module.globals[made.name]
            made = self.translation.function(self.part, [*given, *[PTR] * len(kinds)])
            form = self._filled(made, len(given), form)
        assert made is not None
        return made, form

    def _filled(self, made: ir.Function, given: int, form: Any) -> Any:
        self.variables.clear()
        self.results = made.args[given:]
        self.returns: Any = form
        self.entry = Builder(made.append_basic_block("entry"))
        self.build = Builder(made.append_basic_block("body"))
        arguments = iter([Value(self.build, argument) for argument in made.args[:given]])
        for argument, one in zip(self.part.tree.args.args, self.forms, strict=True):
            self.assign(argument.arg, places.whole(one, arguments))
        self.block(self.part.tree.body)
        if not self.build.block.is_terminated:
            self.build.ret_void()
        self.entry.branch(made.blocks[1])
        return self.returns

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
            return self.part.outside(name)
        form, slots = self.variables[name]
        loaded = (self.build.load(slot, typ=kind) for slot, kind in zip(slots, places.types(form), strict=True))
        return places.whole(form, loaded)

    # -- statements --------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.build.block.is_terminated:
                return
            self.node = statement
            self.method("do", statement)(statement)

    def method(self, prefix: str, node: ast.AST) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] | None = getattr(self, f"{prefix}_{type(node).__name__}", None)
        if found is None:
            raise NotTranslated(f"`{ast.unparse(node)}` has no translation")
        return found

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def do_Pass(self, node: ast.Pass) -> None:
        """Nothing."""

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
        """Give all elements of an array a value."""
        def body(at: Value) -> None:
            places.store(*array.at(at), value)

        self.count(number(self.build, 0), array.size, 1, body)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.assign(node.target.id, self.binary(node.op, self.read(node.target.id), self.value(node.value)))
        else:
            kind, pointer = self.place(node.target)
            places.store(kind, pointer, self.binary(node.op, places.load(kind, pointer), self.value(node.value)))

    def place(self, node: ast.expr) -> tuple[np.dtype, Value]:
        """Where an element or a field lies."""
        owner = self.value(node.value) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        if isinstance(node, ast.Attribute) and isinstance(owner, Record):
            return owner.field(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(owner, Array):
            return owner.at(self.value(node.slice))
        raise NotTranslated(f"`{ast.unparse(node)}` has no place in memory")

    def do_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            value = self.value(node.value)
            if self.returns is None:
                self.returns = shape(value)
            if self.returns != shape(value):
                raise NotTranslated("it returned something else before")
            for slot, piece in zip(self.results, pieces(self.build, value), strict=False):  # none yet at the first time
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
        self.looped(body, head, after, lambda: self.block(node.body))

    def looped(self, body: ir.Block, again: ir.Block, after: ir.Block, emit: Callable[[], Any]) -> None:
        """The body of a loop: where it begins, goes on and ends."""
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
                self.each(given[0], lambda at, value: body((at, value)))
        else:
            self.each(self.value(node.iter), lambda at, value: body(value))

    def each(self, values: Any, body: Callable[[Any, Any], None]) -> None:
        """body(number, value) for each of an array or a tuple."""
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
            self.looped(here, following, after, functools.partial(body, at, value))
            self.build.position_at_end(following)
        self.build.branch(after)
        self.build.position_at_end(after)

    def count(self, first: Value, end: Any, step: Any, body: Callable[[Value], Any]) -> None:
        """body(number) for the numbers of a range; a step that is not known is above 0."""
        build, limit = self.build, number(self.build, end)
        counter = self.entry.alloca(I64)
        build.store(first, counter)
        head, each, again, after = (build.append_basic_block(name) for name in ("range", "each", "step", "after"))
        build.branch(head)
        build.position_at_end(head)
        at = build.load(counter, typ=I64)
        build.cbranch(at.signed > limit if isinstance(step, int) and step < 0 else at.signed < limit, each, after)
        self.looped(each, again, after, lambda: body(at))
        build.position_at_end(again)
        build.store(at + step, counter)
        build.branch(head)
        build.position_at_end(after)

    # -- values ------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        return self.method("of", node)(node)

    def truth(self, node: ast.expr) -> Any:
        return truth(self.build, self.value(node))

    def of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def of_Name(self, node: ast.Name) -> Any:
        return self.read(node.id)

    def of_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.spread(node.elts))

    def spread(self, nodes: Sequence[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.value(node.value)
            else:
                yield self.value(node)

    def of_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Record):
            return places.load(*owner.field(node.attr))
        return getattr(owner, node.attr)

    def of_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            first = 0 if node.slice.lower is None else self.value(node.slice.lower)
            return owner.part(first, owner.size if node.slice.upper is None else self.value(node.slice.upper))
        index = self.value(node.slice)
        if isinstance(owner, Array):
            return places.load(*owner.at(index))
        if isinstance(index, int):
            return owner[index]
        return self.table(owner).at(index)[1].load(I64, 8)

    def table(self, values: Any) -> Array:
        """A tuple of integers as an array."""
        kind = ir.ArrayType(I64, len(values))
        held = ir.GlobalVariable(self.translation.module, kind, self.translation.module.get_unique_name("table"))
        held.linkage, held.global_constant, held.initializer = "internal", True, ir.Constant(kind, [int(one) for one in values])
        return Array(np.dtype(np.int64), Value(self.build, held).address().pointer(), len(values))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            tested = truth(self.build, value)
            return not tested if isinstance(tested, bool) else ~tested
        if isinstance(node.op, ast.USub):
            return -value if isinstance(value, int) else -number(self.build, value)
        if isinstance(node.op, ast.Invert):
            return ~int(value) if isinstance(value, int) else ~number(self.build, value)
        raise NotTranslated(f"`{ast.unparse(node)}` has no translation")

    def of_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if type(op) not in SAME:
            raise NotTranslated(f"no operator {type(op).__name__}")
        if isinstance(a, int) and isinstance(b, int):
            return SAME[type(op)](a, b)
        if isinstance(op, BITWISE) and all(isinstance(one, Value) and one.type == I1 for one in (a, b)):
            return SAME[type(op)](a, b)
        a, b = number(self.build, a), number(self.build, b)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            return self.divided(a, b, isinstance(op, ast.Mod))
        return a.ashr(b) if isinstance(op, ast.RShift) else SAME[type(op)](a, b)

    def divided(self, a: Value, b: Value, rest: bool) -> Value:
        """Rounded down, or what is left over; 0 by 0."""
        build = self.build
        divisor = where((b + 1).unsigned <= 1, 1, b)  # not by 0, nor the lowest number by -1: a host traps
        left = build.srem(a, divisor)
        below = (left != 0) & ((left ^ divisor).signed < 0)
        if rest:
            return where(below, left + divisor, left)
        return where(b == 0, 0, where(b == -1, -a, build.sdiv(a, divisor) - below.zext(I64)))

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        found: Any = self.truth(node.values[0])
        for following in node.values[1:]:
            found = self.joined(found, isinstance(node.op, ast.And), following)
        return found

    def joined(self, first: Any, both: bool, second: ast.expr) -> Any:
        """`first` and `second`, or one of them; the second is not asked where the first decides."""
        if isinstance(first, bool):
            return self.truth(second) if first == both else first
        if both:
            return truth(self.build, self.chosen(first, lambda: self.truth(second), lambda: False))
        return truth(self.build, self.chosen(first, lambda: True, lambda: self.truth(second)))

    def of_IfExp(self, node: ast.IfExp) -> Any:
        return self.chosen(self.truth(node.test), lambda: self.value(node.body), lambda: self.value(node.orelse))

    def chosen(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """The value of one of two."""
        if isinstance(test, bool):
            return then() if test else otherwise()
        name = f"choice {next(self.choices)}"  # no variable's
        self.choose(test, lambda: self.assign(name, then()), lambda: self.assign(name, otherwise()))
        return self.read(name)

    def of_Compare(self, node: ast.Compare) -> Any:
        found: Any = True
        left = self.value(node.left)
        for op, following in zip(node.ops, node.comparators, strict=True):
            right = self.value(following)
            tested = self.compared(op, left, right)
            found = tested if found is True else found & tested
            left = right
        return found

    def compared(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if type(op) not in COMPARED:
            raise NotTranslated(f"no comparison {type(op).__name__}")
        how, known = COMPARED[type(op)]
        if isinstance(a, int) and isinstance(b, int):
            return known(a, b)
        return number(self.build, a).signed.test(how, number(self.build, b))

    def of_Call(self, node: ast.Call) -> Any:
        if node.keywords:
            raise NotTranslated("calls take no keywords")
        called, given = self.value(node.func), list(self.spread(node.args))
        if isinstance(called, Part):
            return self.translation.call(self.build, self.entry, called, given)
        if isinstance(called, Builtin):
            return called.emit(self.build, *(number(self.build, one) if shape(one) is int else one for one in given))
        if called in (min, max):
            pick = smin if called is min else smax
            known = all(isinstance(one, int) for one in given)
            return called(given) if known else functools.reduce(pick, [number(self.build, one) for one in given])
        if called is int:
            return number(self.build, given[0])
        if inspect.ismethod(called) and isinstance(called.__self__, Array):
            return called(*given)
        raise NotTranslated(f"`{ast.unparse(node.func)}` cannot be called")
