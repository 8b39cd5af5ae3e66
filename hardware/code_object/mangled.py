"""Types of a C++ kernel's parameters by its mangled name: `_Z4axpyfPfS_i` takes f32, two pointers, i32.

Itanium C++ ABI, "Mangling": the part of its grammar that kernels' names need. A name that needs more gives no types.
"""

from __future__ import annotations

# <builtin-type> by code, with the sizes of amdgcn (LP64); only types that an argument can be packed as.
BUILTIN = {
    "b": "u8", "c": "i8", "a": "i8", "h": "u8", "s": "i16", "t": "u16", "i": "i32", "j": "u32", "l": "i64", "m": "u64", "x": "i64",
    "y": "u64", "f": "f32", "d": "f64", "w": "i32", "v": "void", "Dh": "f16", "DF16_": "f16", "DF16b": "bf16", "Di": "u32",
    "Ds": "u16", "Du": "u8",
}  # fmt: skip
POINTER = "pointer"
OTHER = ""  # a structure, a vector, an enumeration
LENGTH_LIMIT, DEPTH_LIMIT = 4096, 64


class _Unknown(Exception):
    """A construct that the reader does not know."""


def parameter_types(name: str) -> tuple[str, ...] | None:
    """Returns the type of each parameter, such as f32 or i64, POINTER or OTHER; None if the name does not encode them.

    >>> parameter_types("_Z4axpyfPfS_i")
    ('f32', 'pointer', 'pointer', 'i32')
    """
    if not name.startswith("_Z") or len(name) > LENGTH_LIMIT:
        return None
    try:
        return _Reader(name).encoding()
    except (_Unknown, IndexError, ValueError):
        return None


class _Reader:
    """Recursive-descent parser of a mangled name. Substitutions and template arguments are lists of types."""

    def __init__(self, text: str) -> None:
        self.text = text.partition(".")[0]  # a clone's suffix
        self.at = 2
        self.seen: list[str] = []
        self.arguments: list[str] = []
        self.depth = 0

    def take(self, wanted: str) -> bool:
        """True if `wanted` comes next; steps over it."""
        found = self.text.startswith(wanted, self.at)
        self.at += len(wanted) * found
        return found

    def encoding(self) -> tuple[str, ...]:
        """Reads a function's name, the result type that templates have, and the parameters."""
        if self.name(type_=False):
            self.type()
        found = []
        while self.at < len(self.text):
            found.append(self.type())
        if found == ["void"]:
            return ()
        if not found or "void" in found:
            raise _Unknown
        return tuple(found)

    def number(self) -> int:
        first = self.at
        while self.text[self.at : self.at + 1].isdecimal():
            self.at += 1
        return int(self.text[first : self.at])

    def source_name(self) -> str:
        length = self.number()
        self.at += length
        if not 0 < length <= len(self.text) or self.at > len(self.text):
            raise _Unknown
        return self.text[self.at - length : self.at]

    def name(self, type_: bool) -> bool:
        """Reads a function's or class's name; returns True if it ends with template arguments."""
        nested = self.take("N")
        if nested:
            while self.text[self.at] in "rVKRO":
                self.at += 1
        template = new = False
        parts = 0
        while not (nested and self.take("E")):
            if not nested and parts and self.text[self.at : self.at + 1] != "I":
                break
            if new:  # the part before is a prefix, or a template's name
                self.seen.append(OTHER)
            template, new, parts = self.part(parts), True, parts + 1
            if parts == 1 and self.substituted:
                new = False
        if type_ and new:
            self.seen.append(OTHER)
        return template

    substituted = False  # True if the last part was a substitution

    def part(self, parts: int) -> bool:
        """Reads one part of a name; returns True for template arguments."""
        self.substituted = False
        if parts and self.take("I"):
            self.arguments = self.template_arguments()
            return True
        if self.take("St"):
            if self.text[self.at].isdecimal():
                self.source_name()  # std::name, one part
            else:
                self.substituted = True
        elif self.text[self.at] == "S":
            self.substitution()
            self.substituted = True
        elif self.text[self.at].isdecimal():
            self.source_name()
        else:
            raise _Unknown  # operators, constructors, lambdas
        return False

    def template_arguments(self) -> list[str]:
        """Reads the types of template arguments, OTHER for values."""
        found = []
        while not self.take("E"):
            if self.take("L"):
                self.type()
                while not self.take("E"):
                    if not (self.text[self.at].isdecimal() or self.text[self.at] in "nabcdef"):
                        raise _Unknown
                    self.at += 1
                found.append(OTHER)
            elif self.take("J"):
                self.template_arguments()
                found.append(OTHER)
            else:
                found.append(self.type())
        return found

    def index(self) -> int:
        """Reads the index of a substitution or a template argument: _ is 0, 0_ is 1, and so on in base 36."""
        end = self.text.index("_", self.at)
        digits, self.at = self.text[self.at : end], end + 1
        return int(digits, 36) + 1 if digits else 0

    def substitution(self) -> str:
        if self.take("S") and self.text[self.at] in "absiod":
            self.at += 1
            return OTHER  # std::string and similar
        return self.seen[self.index()]

    def type(self) -> str:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise _Unknown
        try:
            return self.inner_type()
        finally:
            self.depth -= 1

    def inner_type(self) -> str:
        for code, kind in BUILTIN.items():
            if self.take(code):
                return kind
        if self.take("u"):
            return {"__bf16": "bf16"}.get(self.source_name(), OTHER)
        if self.text.startswith("S", self.at) and not self.text.startswith("St", self.at):
            kind = self.substitution()
            if self.take("I"):
                self.nested_arguments()
                self.seen.append(OTHER)
                return OTHER
            return kind
        if self.take("T"):
            kind = self.arguments[self.index()]
            self.seen.append(kind)
            return kind
        before = self.text[self.at]
        if before in "PRO":
            self.at += 1
            self.type()
            self.seen.append(POINTER)
            return POINTER
        if before in "KVr":
            while self.text[self.at] in "KVr":
                self.at += 1
            kind = self.type()
        elif self.take("U"):
            self.source_name()
            kind = self.type()
        elif self.take("Dv") or self.take("A"):
            self.number()
            if not self.take("_"):
                raise _Unknown
            self.type()
            kind = OTHER
        elif self.take("F"):
            while not self.take("E"):
                self.type()
            kind = OTHER
        else:
            outer = self.arguments
            self.name(type_=True)
            self.arguments = outer
            return OTHER
        self.seen.append(kind)
        return kind

    def nested_arguments(self) -> None:
        outer = self.arguments
        self.template_arguments()
        self.arguments = outer
