"""Litmus tests in the form of herdtools, for PTX and for Vulkan: the part that atomics and fences with scopes express.

    PTX MP
    { x=0; flag=0; P1:r0=0; P1:r1=0; }
     P0@cta 0,gpu 0         | P1@cta 1,gpu 0           ;
     st.weak x, 1           | ld.acquire.gpu r0, flag  ;
     st.release.gpu flag, 1 | ld.weak r1, x            ;
    exists (P1:r0 == 1 /\\ P1:r1 != 1)

PTX's cta, gpu and sys are the scopes workgroup, agent and system; Vulkan's sg, wg and dv are wavefront, workgroup and agent.
Barriers, branches, proxies, aliases, arithmetic and conditions on memory have no translation. In Vulkan, plain accesses need
atomics with semav and semvis, since LLVM's releases and acquires concern all memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import cast

from simgpu.hardware.memory_model import Order, Scope
from simgpu.tools.litmus.form import APART, DEVICES, NEEDED, TOGETHER, Claim, LitmusStep, LitmusTest, RegisterComparison, demand
from simgpu.tools.shared.errors import UsageError

FIRST_LINE = re.compile(r"(PTX|Vulkan) +(\S.*)", re.IGNORECASE)
SCOPES = {
    "PTX": {"cta": Scope.WORKGROUP, "gpu": Scope.AGENT, "gl": Scope.AGENT, "sys": Scope.SYSTEM},
    "Vulkan": {"sg": Scope.WAVEFRONT, "wg": Scope.WORKGROUP, "dv": Scope.AGENT},
}
ORDERS = {
    "weak": None, "relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel", "sc": "seq_cst",
    "acq": "acquire", "rel": "release",
}  # fmt: skip
KINDS = {"ld": "load", "st": "store", "atom": "add", "rmw": "add", "fence": "fence", "membar": "fence"}
IGNORED = ("atom", "add", "nonpriv", "sc0", "semsc0", "semav", "semvis", "av", "vis")  # words without a meaning of their own here
_HEADER = re.compile(r"P\d+@(?:sg (\d+), *)?(?:cta|wg) (\d+), *(?:gpu|qf) (\d+)")
_COMPARISON = re.compile(r"P?(\d+) *: *(\w+) *(==?|!=) *(\d+)")


def is_herd(text: str) -> bool:
    """True if a text begins as such a test does."""
    return FIRST_LINE.match(text) is not None


def parse_herd(text: str, file: str) -> LitmusTest:
    """Parses a test. Raises UsageError, which names the file and what has no translation."""
    try:
        return _Parser(text, file).test()
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None


class _Parser:
    """Parser of one test."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        first = FIRST_LINE.match(text)
        body = re.fullmatch(r"[^{]*\{(?P<before>[^}]*)\}(?P<rows>.*?)(?P<claim>(?:~? *exists|forall)\b.*)", text, re.DOTALL)
        if first is None or body is None:
            raise ValueError("a test has a name, { … }, a table of threads, and exists, ~exists or forall")
        self.dialect, self.name = "PTX" if first[1].upper() == "PTX" else "Vulkan", first[2].strip()
        self.before, self.claim = body["before"], body["claim"]
        rows = [row.split("|") for row in body["rows"].split(";") if row.strip()]
        self.columns = [[cell.strip() for cell in column if cell.strip()] for column in itertools.zip_longest(*rows, fillvalue="")]
        self.registers: dict[tuple[int, str], str] = {}  # our names of loaded registers, by thread and name
        self.locations: dict[str, str] = {}  # our letters, by name
        self.far: dict[str, Scope] = {}  # the narrowest scope of semav and semvis, and of av and vis if all plain accesses have it

    def test(self) -> LitmusTest:
        self._check_values()
        threads = tuple(tuple(self._steps(number, column[1:])) for number, column in enumerate(self.columns))
        place = self._place(threads)
        accesses = [step for thread in threads for step in thread if step.kind != "fence"]
        far = {word for word, scope in self.far.items() if scope >= NEEDED[place]}  # that hold for all threads
        narrow = any(step.order is not None and step.scope < NEEDED[place] for step in accesses)
        lacks = {{"load": "vis", "store": "av"}[step.kind] for step in accesses if step.order is None} - far
        if self.dialect == "Vulkan" and (narrow or lacks) and not far >= {"semav", "semvis"}:
            raise ValueError("accesses of a narrow scope, and no semav and semvis of a wider one: LLVM has no such order")
        test = LitmusTest(self.name, place, threads, claim=self._claim())
        demand(test, self.file)
        return test

    def _check_values(self) -> None:
        """Raises ValueError if something is not 0 at first, or is an alias."""
        for line in filter(None, (part.strip() for part in self.before.split(";"))):
            if re.fullmatch(r"(?:P\d+ *: *)?\w+ *= *0", line) is None:
                raise ValueError(f"`{line}`: only locations and registers that are 0 at first have a translation")

    def _place(self, threads: tuple[tuple[LitmusStep, ...], ...]) -> str:
        """Returns where the threads are. If only some share a workgroup, all may have one each, unless a scope is narrower."""
        found = [_HEADER.fullmatch(column[0]) for column in self.columns if column]
        if not all(found) or len(found) != len(self.columns):
            raise ValueError("each thread has a header such as P0@cta 0,gpu 0")
        groups, devices = [[one[index] for one in found if one] for index in (2, 3)]
        waves = [one.groups() for one in found if one]
        if len(set(waves)) < len(waves) and self.dialect == "Vulkan":
            raise ValueError("two threads in one subgroup have no translation")
        for place, numbers in ((DEVICES, devices), (APART, list(zip(groups, devices)))):
            if len(set(numbers)) > 1:
                narrow = min((step.scope for thread in threads for step in thread if step.order), default=Scope.SYSTEM)
                if len(set(numbers)) < len(numbers) and narrow < NEEDED[place]:
                    raise ValueError("some threads share a workgroup or a GPU, and a scope is narrower than all of them need")
                return place
        return TOGETHER

    def _steps(self, thread: int, cells: list[str]) -> Iterator[LitmusStep]:
        constants: dict[str, int] = {}  # registers with a known value
        for cell in cells:
            mnemonic, _, rest = cell.partition(" ")
            arguments = [word.strip() for word in rest.split(",")] if rest else []
            if mnemonic == "ld" and len(arguments) == 2 and arguments[1].isdigit():
                constants[arguments[0]] = int(arguments[1])
                continue
            yield self._step(thread, cell, mnemonic.split("."), arguments, constants)

    def _step(
        self, thread: int, cell: str, words: list[str], arguments: list[str], constants: dict[str, int]
    ) -> LitmusStep:
        kind, scopes = KINDS.get(words[0]), SCOPES[self.dialect]
        known = all(word in ORDERS or word in scopes or word in IGNORED for word in words[1:])
        if kind is None or not known or (kind == "add") != ("add" in words):
            raise ValueError(f"`{cell}` has no translation")
        orders = [ORDERS[word] for word in words if word in ORDERS]
        scope = next((scopes[word] for word in words if word in scopes), Scope.SYSTEM)
        plain = not orders and kind != "fence" and "atom" not in words[1:]
        for word in {"semav", "semvis", "av", "vis"} & set(words):
            self.far[word] = min(scope, self.far.get(word, scope))
        if plain and not {"av", "vis"} & set(words):
            self.far["av" if kind == "store" else "vis"] = Scope.WAVEFRONT
        order = orders[0] if orders else None
        if not orders and (kind == "fence" or "atom" in words[1:]):
            order = "monotonic" if kind != "fence" else "seq_cst"  # PTX's membar is fence.sc
        register, location, value = "", "", 0
        if kind in ("load", "add"):
            if (thread, arguments[0]) in self.registers or arguments[0] in constants:
                raise ValueError(f"`{cell}`: a register that is written twice has no translation")
            register = self.registers.setdefault((thread, arguments.pop(0)), f"r{len(self.registers)}")
        if kind != "fence":
            location = self.locations.setdefault(arguments.pop(0), chr(ord("a") + len(self.locations)))
        if kind in ("store", "add"):
            said = arguments.pop(0)
            if not said.isdigit() and said not in constants:
                raise ValueError(f"`{cell}`: a value that was loaded has no translation")
            value = int(said) if said.isdigit() else constants[said]
        if arguments not in ([], [""]):
            raise ValueError(f"`{cell}` has too many operands")
        return LitmusStep(kind, location, value, register, cast(Order | None, order), scope)

    def _claim(self) -> Claim:
        """Returns the condition, as alternatives of comparisons that all hold."""
        kind, _, rest = self.claim.replace("~ ", "~").partition("exists" if "exists" in self.claim else "forall")
        quantifier = {"": "exists", "~": "~exists"}[kind.strip()] if "exists" in self.claim else "forall"
        text, blanks = rest.strip(), " ()\n\t"
        alternatives = []
        for part in re.split(r"\\/", text):
            comparisons = []
            for atom in re.split(r"/\\", part):
                found = _COMPARISON.fullmatch(atom.strip(blanks))
                name = found and self.registers.get((int(found[1]), found[2]))
                if found is None or name is None:
                    raise ValueError(f"the condition `{atom.strip(blanks)}` has no translation")
                comparisons.append(RegisterComparison(name, found[3] != "!=", int(found[4])))
            alternatives.append(tuple(comparisons))
        if len(alternatives) > 1 and re.search(r"\([^()]*\\/[^()]*\) */\\|/\\ *\([^()]*\\/", text):
            raise ValueError("a condition with alternatives inside a conjunction has no translation")
        return Claim(quantifier, tuple(alternatives))
