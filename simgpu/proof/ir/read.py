"""Reads IR: LLVM parses and prints a file, so that one form of each instruction remains. This reads the print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import llvmlite.binding as llvm

from simgpu.proof.ir.syntax import (
    BOOL,
    OTHER,
    VOID,
    Block,
    Function,
    Global,
    IrInstruction,
    IrLocal,
    IrModule,
    IrParameter,
    IrType,
    Number,
    Operand,
    Unreadable,
    integer,
)  # fmt: skip
from simgpu.proof.ir.tokens import CASTS, TokenCursor, tokens_of

LINKAGE = (
    "internal", "private", "dso_local", "hidden", "protected", "linkonce_odr", "linkonce", "weak", "weak_odr", "external",
    "unnamed_addr", "local_unnamed_addr", "externally_initialized", "available_externally", "common", "appending", "default",
)  # fmt: skip
CONVENTIONS = re.compile(r"(amdgpu_\w+|spir_\w+|fastcc|coldcc|ccc|cc)$")
BINARY = (
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor",
    "fadd", "fsub", "fmul", "fdiv", "frem",
)  # fmt: skip


def read_ir(text: str) -> IrModule:
    """Reads text. Raises Unreadable.

    >>> module = read_ir("define i32 @f(i32 %a) {\\n %b = add nsw i32 %a, 1\\n ret i32 %b\\n}")
    >>> module.functions["@f"].blocks[0].instructions[0].flags
    frozenset({'nsw'})
    """
    try:
        printed = str(llvm.parse_assembly(text, llvm.create_context()))
    except RuntimeError as error:
        raise Unreadable(" ".join(str(error).split())[:200]) from None
    return _read(printed)


def _read(text: str) -> IrModule:
    """Reads what LLVM has printed."""
    lines = text.splitlines()
    types = _named_types(lines)
    metadata = dict(re.findall(r"^(!\d+) = (?:distinct )?!\{(.*)\}$", text, re.MULTILINE))
    attributes = dict(re.findall(r"^attributes (#\d+) = \{(.*)\}$", text, re.MULTILINE))
    module = IrModule(text)
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("@"):
            variable = _global(line, types)
            module.variables[variable.name] = variable
        elif line.startswith(("define ", "declare ")):
            body = []
            if line.startswith("define "):
                end = lines.index("}", at)
                body, at = lines[at + 1 : end], end
            function = _function(line, body, types, metadata, attributes)
            module.functions[function.name] = function
        at += 1
    return module


def _named_types(lines: list[str]) -> dict[str, IrType]:
    """Returns structs by name; each may have others in it."""
    found = (re.match(r'(%(?:"[^"]*"|[-\w$.]+)) = type (.*)$', line) for line in lines)
    left = {match[1]: match[2] for match in found if match}
    made: dict[str, IrType] = {}
    while left:
        before = len(left)
        for name, text in list(left.items()):
            try:
                made[name] = TokenCursor(tokens_of(text), made).type() if text != "opaque" else OTHER
            except Unreadable:
                continue
            del left[name]
        if len(left) == before:
            break
    return made


def _global(line: str, types: Mapping[str, IrType]) -> Global:
    cursor = TokenCursor(tokens_of(line), types)
    name = cursor.take()
    cursor.expect("=")
    space = 0
    while not cursor.accept("global", "constant"):
        if cursor.accept("addrspace"):
            space = int(cursor.skip_brackets()[0])
        elif not cursor.take():
            return Global(name, space, OTHER, False, None)  # an alias
    constant = cursor.tokens[cursor.at - 1] == "constant"
    try:
        type_ = cursor.type()
        initial = cursor.operand(type_) if cursor.next not in ("", ",") else None
    except Unreadable:
        return Global(name, space, OTHER, constant, None)
    rest = cursor.tokens[cursor.at :]
    align = int(rest[rest.index("align") + 1]) if "align" in rest else 0
    return Global(name, space, type_, constant, initial, align)


def _function(
    line: str, body: list[str], types: Mapping[str, IrType], metadata: Mapping[str, str], attributes: Mapping[str, str]
) -> Function:
    cursor = TokenCursor(tokens_of(line), types)
    cursor.take()
    convention = "ccc"
    while not cursor.next.startswith("@"):
        if cursor.next in LINKAGE:
            cursor.take()
        elif CONVENTIONS.match(cursor.next):
            convention = cursor.take()
        else:
            begin = cursor.at
            try:
                result = cursor.type()
            except Unreadable:
                cursor.at = begin + 1  # an attribute of the result
                if cursor.next == "(":
                    cursor.skip_brackets()
    name = cursor.take()
    try:
        parameters = tuple(_parameters(cursor))
        rest = " ".join(cursor.tokens[cursor.at :])
        rest += "".join(f" {attributes.get(each, '')}" for each in re.findall(r"#\d+", rest))
        unnamed = sum(each.name[1:].isdecimal() for each in parameters)
        blocks = tuple(_blocks(body, types, metadata, unnamed)) if body else ()
    except Unreadable as reason:
        blocks = (Block("", (IrInstruction("unreadable", VOID, what=str(reason)),)),) if body else ()
        parameters, rest = (), ""
    return Function(name, convention, result, parameters, rest, blocks)


def _parameters(cursor: TokenCursor) -> Iterator[IrParameter]:
    cursor.expect("(")
    while not cursor.accept(")"):
        if cursor.accept("..."):
            continue
        type_, align, byref, found, name = cursor.type(), 1, None, set(), ""
        while cursor.next not in (",", ")"):
            token = cursor.take()
            if token == "align":
                align = int(cursor.take())
            elif token[:1] == "%":
                name = token
            elif cursor.next == "(":
                begin = cursor.at
                inner = cursor.skip_brackets()
                if token in ("byref", "byval", "sret"):
                    byref = TokenCursor(cursor.tokens[begin + 1 : cursor.at - 1], cursor.types).type()
                found.add(f"{token}({' '.join(inner)})" if token not in ("byref", "byval", "sret") else token)
            else:
                found.add(token)
        cursor.accept(",")
        yield IrParameter(type_, name, align, byref, frozenset(found))


def _blocks(body: list[str], types: Mapping[str, IrType], metadata: Mapping[str, str], unnamed: int) -> Iterator[Block]:
    made: list[IrInstruction] = []
    name = f"%{unnamed}"  # an entry block without a name has the number after the parameters
    first = True
    for line in _whole(body):
        label = re.match(r'("[^"]*"|[-\w$.]+):', line)
        if label:
            if not first:
                yield Block(name, tuple(made))
            name, made = f"%{label[1]}", []
        elif line.strip() and not line.strip().startswith((";", "#dbg")):
            made.append(_Line(line, types, metadata).instruction())
        first = first and not line.strip()
    yield Block(name, tuple(made))


def _whole(body: list[str]) -> Iterator[str]:
    """Yields lines, those of a switch as one."""
    held = ""
    for line in body:
        held += line + " "
        if held.count("[") <= held.count("]") or not re.match(r"\s+switch ", held):
            yield held.rstrip()
            held = ""


class _Line:
    """An instruction's line."""

    def __init__(self, line: str, types: Mapping[str, IrType], metadata: Mapping[str, str]) -> None:
        self.text = line.strip()
        self.metadata = metadata
        self.cursor = TokenCursor(tokens_of(line), types)

    def instruction(self) -> IrInstruction:
        """Returns the instruction. Raises Unreadable."""
        cursor, name = self.cursor, ""
        if cursor.next.startswith("%"):
            name = cursor.take()
            cursor.expect("=")
        flags = cursor.flags()
        op = cursor.take()
        flags |= cursor.flags()
        made = READERS.get(op, _Line.other)(self, op)
        align, limits = self._after()
        return replace(
            made, name=name, flags=made.flags | flags, text=self.text, align=align or made.align, limits=limits or made.limits
        )

    def _after(self) -> tuple[int, tuple[int, int] | None]:
        """Returns what comes last: the alignment, 0 if there is none, and the range of metadata."""
        align, limits = 0, None
        cursor = self.cursor
        while cursor.next:
            token = cursor.take()
            if token == "align" and cursor.next.isdecimal():
                align = int(cursor.take())
            elif token == "!range":
                values = [int(each) for each in re.findall(r"i\d+ (-?\d+)", self.metadata.get(cursor.take(), ""))]
                if len(values) == 2:
                    limits = values[0], values[1]
            elif token == "!fpmath":
                raise Unreadable("!fpmath")
        return align, limits

    def operands(self) -> tuple[Operand, ...]:
        """Takes operands, each with its type."""
        made = [self.cursor.typed_operand()]
        while self.cursor.next == "," and self.cursor.tokens[self.cursor.at + 1 : self.cursor.at + 2] not in (["align"], []):
            if self.cursor.tokens[self.cursor.at + 1].startswith("!"):
                break
            self.cursor.take()
            made.append(self.cursor.typed_operand())
        return tuple(made)

    def other(self, op: str) -> IrInstruction:
        raise Unreadable(op)

    def binary(self, op: str) -> IrInstruction:
        type_ = self.cursor.type()
        first = self.cursor.operand(type_)
        self.cursor.expect(",")
        return IrInstruction(op, type_, (first, self.cursor.operand(type_)))

    def unary(self, op: str) -> IrInstruction:
        operand = self.cursor.typed_operand()
        return IrInstruction(op, operand.type, (operand,))

    def compare(self, op: str) -> IrInstruction:
        predicate = self.cursor.take()
        type_ = self.cursor.type()
        first = self.cursor.operand(type_)
        self.cursor.expect(",")
        result = replace(type_, fields=(BOOL,)) if type_.kind == "vector" else BOOL
        return IrInstruction(op, result, (first, self.cursor.operand(type_)), what=predicate)

    def cast(self, op: str) -> IrInstruction:
        operand = self.cursor.typed_operand()
        self.cursor.expect("to")
        return IrInstruction(op, self.cursor.type(), (operand,))

    def select(self, op: str) -> IrInstruction:
        operands = self.operands()
        return IrInstruction(op, operands[1].type, operands)

    def element(self, op: str) -> IrInstruction:
        operands = self.operands()
        return IrInstruction(op, operands[0].type.element if op == "extractelement" else operands[0].type, operands)

    def shuffle(self, op: str) -> IrInstruction:
        a, b, mask = self.operands()
        count = mask.type.count
        items = getattr(mask, "items", (Number(integer(32), 0),) * count if isinstance(mask, Number) else (mask,) * count)
        numbers = tuple(item.value if isinstance(item, Number) else -1 for item in items)
        return IrInstruction(op, replace(a.type, count=count), (a, b), numbers=numbers)

    def value(self, op: str) -> IrInstruction:
        operands = [self.cursor.typed_operand()]
        if op == "insertvalue":
            self.cursor.expect(",")
            operands.append(self.cursor.typed_operand())
        numbers = []
        while self.cursor.accept(","):
            if not self.cursor.next.isdecimal():
                break
            numbers.append(int(self.cursor.take()))
        type_ = operands[0].type
        for index in numbers if op == "extractvalue" else ():
            type_ = type_.parts[index]
        return IrInstruction(op, type_, tuple(operands), numbers=tuple(numbers))

    def load(self, op: str) -> IrInstruction:
        flags = self.cursor.flags()
        type_ = self.cursor.type()
        self.cursor.expect(",")
        return IrInstruction(op, type_, (self.cursor.typed_operand(),), flags=flags)

    def store(self, op: str) -> IrInstruction:
        flags = self.cursor.flags()
        return IrInstruction(op, VOID, self.operands(), flags=flags)

    def pointer(self, op: str) -> IrInstruction:
        source = self.cursor.type()
        self.cursor.expect(",")
        operands = self.operands()
        if any(each.type.kind == "vector" for each in operands):
            raise Unreadable("getelementptr of vectors")
        return IrInstruction(op, operands[0].type, operands, source=source)

    def alloca(self, op: str) -> IrInstruction:
        source, count, space = self.cursor.type(), 1, 0
        while self.cursor.accept(","):
            if self.cursor.accept("align"):
                self.cursor.take()
            elif self.cursor.accept("addrspace"):
                space = int(self.cursor.skip_brackets()[0])
            elif not self.cursor.next.startswith("!"):
                number = self.cursor.typed_operand()
                if not isinstance(number, Number):
                    raise Unreadable("alloca of a variable size")
                count = number.value
        bits = 32 if space == 5 else 64
        return IrInstruction(op, IrType("ptr", bits, space=space), source=IrType("array", count=count, fields=(source,)))

    def phi(self, op: str) -> IrInstruction:
        type_ = self.cursor.type()
        operands, targets = [], []
        while self.cursor.accept("["):
            operands.append(self.cursor.operand(type_))
            self.cursor.expect(",")
            targets.append(self.cursor.take())
            self.cursor.expect("]")
            self.cursor.accept(",")
        return IrInstruction(op, type_, tuple(operands), targets=tuple(targets))

    def branch(self, op: str) -> IrInstruction:
        operands = self.operands()
        names = tuple(each.name for each in operands if isinstance(each, IrLocal) and each.type is OTHER)
        return IrInstruction(op, VOID, operands[:1] if len(operands) > 1 else (), targets=names)

    def switch(self, op: str) -> IrInstruction:
        value, _ = self.operands()
        names, numbers = [self.cursor.tokens[self.cursor.at - 1]], []
        self.cursor.expect("[")
        while not self.cursor.accept("]"):
            case, target = self.operands()
            assert isinstance(case, Number) and isinstance(target, IrLocal)
            numbers.append(case.value)
            names.append(target.name)
        return IrInstruction(op, VOID, (value,), numbers=tuple(numbers), targets=tuple(names))

    def ret(self, op: str) -> IrInstruction:
        return IrInstruction(op, VOID, () if self.cursor.accept("void") else (self.cursor.typed_operand(),))

    def call(self, op: str) -> IrInstruction:
        """Takes a call: attributes of the result, its type, the function, arguments with theirs."""
        cursor, limits = self.cursor, None
        while True:
            begin = cursor.at
            try:
                result = cursor.type()
                break
            except Unreadable:
                cursor.at = begin
            word = cursor.take()
            if word == "range":
                limits = _limits(cursor.skip_brackets())
            elif cursor.next == "(":
                cursor.skip_brackets()
            elif not word:
                raise Unreadable(self.text[:60])
        if cursor.next == "(":
            cursor.skip_brackets()  # the type of a variadic function
        callee = cursor.take()
        if callee == "asm":
            self._comment(result)
            return IrInstruction("comment", VOID)
        if callee[:1] != "@":
            raise Unreadable("a call by pointer")
        operands = []
        cursor.expect("(")
        while not cursor.accept(")"):
            operands.append(self._argument())
            cursor.accept(",")
        return IrInstruction(op, result, tuple(each for each in operands if each is not None), what=callee, limits=limits)

    def _comment(self, result: IrType) -> None:
        """Takes inline assembly without instructions and results. Raises Unreadable for other."""
        while not self.cursor.next.startswith('"'):
            if not self.cursor.take():
                raise Unreadable("inline assembly")
        lines = self.cursor.take().strip('"').replace("\\0A", "\n").splitlines()
        if result is not VOID or any(line.strip() and not line.strip().startswith(";") for line in lines):
            raise Unreadable("inline assembly")
        self.cursor.at = len(self.cursor.tokens)

    def _argument(self) -> Operand | None:
        cursor = self.cursor
        type_ = cursor.type()
        if type_ is OTHER:
            while cursor.next not in (",", ")", ""):
                if cursor.take().startswith("!") and cursor.next == "(":
                    cursor.skip_brackets()
            return None
        while re.fullmatch(r"[a-z]\w*", cursor.next) and cursor.next not in ("true", "false", "undef", "poison", "null", "splat",
                                                                           "zeroinitializer", "getelementptr", *CASTS):  # fmt: skip
            word = cursor.take()
            if word == "align":
                cursor.take()
            elif cursor.next == "(":
                cursor.skip_brackets()
            elif word in ("add", "sub", "xor"):
                raise Unreadable("a constant expression as an argument")
        return cursor.operand(type_)

    def atomic(self, op: str) -> IrInstruction:
        operation = self.cursor.take() if op == "atomicrmw" else "cmpxchg"
        operands = self.operands()
        result = operands[1].type
        if op == "cmpxchg":
            result = IrType("struct", fields=(result, BOOL))
        return IrInstruction(op, result, operands, what=operation)

    def fence(self, op: str) -> IrInstruction:
        self.cursor.at = len(self.cursor.tokens)
        return IrInstruction(op, VOID)


def _limits(tokens: list[str]) -> tuple[int, int] | None:
    numbers = [int(each) for each in tokens if re.fullmatch(r"-?\d+", each)]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


READERS: dict[str, Callable[[_Line, str], IrInstruction]] = {
    **dict.fromkeys(BINARY, _Line.binary), **dict.fromkeys(CASTS, _Line.cast), **dict.fromkeys(("icmp", "fcmp"), _Line.compare),
    **dict.fromkeys(("fneg", "freeze"), _Line.unary), **dict.fromkeys(("extractelement", "insertelement"), _Line.element),
    **dict.fromkeys(("extractvalue", "insertvalue"), _Line.value), **dict.fromkeys(("atomicrmw", "cmpxchg"), _Line.atomic),
    "select": _Line.select, "shufflevector": _Line.shuffle, "load": _Line.load, "store": _Line.store,
    "getelementptr": _Line.pointer, "alloca": _Line.alloca, "phi": _Line.phi, "br": _Line.branch, "switch": _Line.switch,
    "ret": _Line.ret, "call": _Line.call, "unreachable": _Line.fence, "fence": _Line.fence,
}  # fmt: skip
