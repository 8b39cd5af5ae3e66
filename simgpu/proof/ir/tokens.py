"""Tokens of IR as LLVM prints it, types and constants."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from simgpu.proof.ir.syntax import (
    FLOATS,
    OTHER,
    POINTER_BITS,
    VOID,
    Aggregate,
    IrInstruction,
    IrLocal,
    IrSymbol,
    IrType,
    Number,
    Operand,
    Undefined,
    Unreadable,
    integer,
)  # fmt: skip

TOKEN = re.compile(
    r'\s*(?:(c?"[^"]*"|[%@](?:"[^"]*"|[-\w$.]+)|![-\w.]*(?:"[^"]*")?|#\d+|0x[KLMHR]?[0-9A-Fa-f]+|-?\d+(?:\.\d+(?:e[-+]?\d+)?)?(?![\w.])'
    r"|[\w.$-]+|[][(){}<>,=*:|])|;[^\n]*)"
)
CASTS = (
    "trunc",
    "zext",
    "sext",
    "fptrunc",
    "fpext",
    "fptoui",
    "fptosi",
    "uitofp",
    "sitofp",
    "ptrtoint",
    "ptrtoaddr",
    "inttoptr",
    "bitcast",
    "addrspacecast",
)
FLAGS = (
    "nsw", "nuw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "volatile", "atomic", "weak",
    "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast", "tail", "musttail", "notail",
)  # fmt: skip
EXPRESSIONS = (*CASTS, "getelementptr", "add", "sub", "mul", "xor", "shl", "and", "or", "lshr", "ashr")


def tokens_of(text: str) -> list[str]:
    """Returns the tokens of IR.

    >>> tokens_of("%a = add nsw i32 %b, -1 ; comment")
    ['%a', '=', 'add', 'nsw', 'i32', '%b', ',', '-1']
    """
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise Unreadable(f"{text[at:].strip()[:60]!r}")
        if match[1]:
            found.append(match[1])
        at = match.end()
    return found


class TokenCursor:
    """A place in tokens."""

    def __init__(self, tokens: list[str], types: Mapping[str, IrType]) -> None:
        self.tokens, self.types, self.at = tokens, types, 0

    @property
    def next(self) -> str:
        """Next token; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Returns the next token and goes on."""
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def accept(self, *wanted: str) -> str:
        """Takes the next token if it is one of these, else returns an empty text."""
        return self.take() if self.next in wanted else ""

    def expect(self, wanted: str) -> None:
        """Takes a token. Raises Unreadable for another one."""
        got = self.take()
        if got != wanted:
            raise Unreadable(f"{got!r} where {wanted!r} is expected in {' '.join(self.tokens)[:80]!r}")

    def flags(self) -> frozenset[str]:
        """Takes flags such as nsw."""
        found = []
        while self.next in FLAGS:
            found.append(self.take())
        return frozenset(found)

    def skip_brackets(self) -> list[str]:
        """Takes the tokens in the brackets that begin here."""
        begin, depth = self.at, 0
        while True:
            token = self.take()
            depth += (token == "(") - (token == ")")
            if depth == 0 or not token:
                return self.tokens[begin + 1 : self.at - 1]

    # -- types ---------------------------------------------------------------------------------

    def type(self) -> IrType:
        """Takes a type."""
        token = self.take()
        if re.fullmatch(r"i\d+", token):
            made = integer(int(token[1:]))
        elif token in FLOATS:
            made = IrType("float", FLOATS[token], token)
        elif token == "ptr":
            made = self._pointer()
        elif token == "void":
            made = VOID
        elif token in ("<", "[", "{"):
            made = self._composite(token)
        elif token[:1] == "%" and token in self.types:
            made = self.types[token]
        elif token in ("label", "metadata", "token"):
            made = OTHER
        else:
            raise Unreadable(f"type {token}")
        return made

    def _pointer(self) -> IrType:
        space = 0
        if self.accept("addrspace"):
            space = int(self.skip_brackets()[0])
        if space not in POINTER_BITS:
            raise Unreadable(f"pointers of address space {space}")
        return IrType("ptr", POINTER_BITS[space], space=space)

    def _composite(self, opening: str) -> IrType:
        if opening == "{" or (opening == "<" and self.accept("{")):
            fields = []
            while not self.accept("}"):
                fields.append(self.type())
                self.accept(",")
            if opening == "<":
                self.expect(">")
            return IrType("struct", fields=tuple(fields), packed=opening == "<")
        if self.next == "vscale":
            raise Unreadable("vectors of unknown length")
        count = int(self.take())
        self.expect("x")
        made = IrType("vector" if opening == "<" else "array", count=count, fields=(self.type(),))
        self.expect(">" if opening == "<" else "]")
        return made

    # -- operands ------------------------------------------------------------------------------

    def typed_operand(self) -> Operand:
        """Takes a type and an operand of it."""
        return self.operand(self.type())

    def operand(self, type_: IrType) -> Operand:
        """Takes an operand of a type."""
        token = self.take()
        if token[:1] == "%":
            return IrLocal(type_, token)
        if token[:1] == "@":
            return IrSymbol(type_, token)
        if token in ("undef", "poison"):
            return Undefined(type_, token == "poison")
        if token in ("zeroinitializer", "null", "false"):
            return Number(type_, 0)
        if token == "true":
            return Number(type_, 1)
        if token == "splat":
            self.expect("(")
            item = self.typed_operand()
            self.expect(")")
            return Aggregate(type_, (item,) * type_.count)
        if token[:2] == 'c"':
            return Aggregate(type_, tuple(Number(type_.element, byte) for byte in _text_bytes(token[2:-1])))
        if token in ("[", "{", "<"):
            return self._group(type_, token)
        if token in EXPRESSIONS:
            return self._expression(type_, token)
        return Number(type_, constant(type_, token))

    def _group(self, type_: IrType, opening: str) -> Aggregate:
        packed = opening == "<" and bool(self.accept("{"))
        closing = {"[": "]", "{": "}", "<": "}" if packed else ">"}[opening]
        items = []
        while not self.accept(closing):
            items.append(self.typed_operand())
            self.accept(",")
        if packed:
            self.expect(">")
        return Aggregate(type_, tuple(items))

    def _expression(self, type_: IrType, op: str) -> IrInstruction:
        flags = self.flags()
        if self.next in ("inrange", "nuw"):
            raise Unreadable(f"{op} with {self.next}")
        self.expect("(")
        source = VOID
        if op == "getelementptr":
            source = self.type()
            self.expect(",")
        operands = [self.typed_operand()]
        while self.accept(","):
            operands.append(self.typed_operand())
        if op in CASTS:
            self.expect("to")
            self.type()
        self.expect(")")
        return IrInstruction(op, type_, tuple(operands), flags=flags, source=source, text=op)


def constant(type_: IrType, token: str) -> int:
    """Returns the bits of a number.

    >>> hex(constant(IrType("float", 32, "float"), "1.500000e+00")), constant(integer(8), "-1")
    ('0x3fc00000', 255)
    """
    try:
        if type_.kind == "int":
            return int(token) & (1 << type_.bits) - 1
        if type_.kind == "float":
            return _float_bits(type_, token)
    except (ValueError, struct.error):
        pass
    raise Unreadable(f"{type_} {token}")


def _float_bits(type_: IrType, token: str) -> int:
    if token[:3] in ("0xH", "0xR"):
        return int(token[3:], 16)
    if token[:2] == "0x":
        wide = int(token, 16)
        if type_.name == "double":
            return wide
        value = struct.unpack("<d", wide.to_bytes(8, "little"))[0]
        if value != value:  # the bits of a NaN, as a conversion would quiet it
            return (wide >> 63) << 31 | 0x7F800000 | wide >> 29 & 0x7FFFFF
    else:
        value = float(token)
    form = {"half": "<e", "float": "<f", "double": "<d"}.get(type_.name)
    if form is None:
        raise ValueError
    return int.from_bytes(struct.pack(form, value), "little")


def _text_bytes(text: str) -> bytes:
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
