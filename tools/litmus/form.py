"""A litmus test, and its written form:

    name mp
    place apart
    thread
      store x 1
      store y 1 release agent
    thread
      r0 = load y acquire agent
      r1 = load x
    never r0=1 r1=0

Locations hold 0 at first. `place` says where the threads are: `together` in a workgroup, a wave each; `apart` in a workgroup
each; on a device each with `devices`.
An access without an order is plain. `r = add LOCATION VALUE ORDER SCOPE` is a read-modify-write, `fence ORDER SCOPE` a fence.
The optional lines `never` and `sometimes` state results that the author rules out or expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, cast, get_args

from simgpu.hardware.memory_model import Order, Scope
from simgpu.tools.shared.errors import UsageError

SCOPES = {scope.words: scope for scope in Scope}
ORDERS = get_args(Order)
TOGETHER, APART, DEVICES = "together", "apart", "devices"
NEEDED = {TOGETHER: Scope.WORKGROUP, APART: Scope.AGENT, DEVICES: Scope.SYSTEM}  # scopes that include all threads
THREADS, STEPS, LOCATIONS = 4, 12, 6  # the most of each in a test
ORDERS_OF = {
    "load": ("monotonic", "acquire", "seq_cst"), "store": ("monotonic", "release", "seq_cst"), "add": ORDERS,
    "fence": ("acquire", "release", "acq_rel", "seq_cst"),
}  # fmt: skip
NEEDS = {  # whether a kind has a register, a location and a value
    "load": (True, True, False), "store": (False, True, True), "add": (True, True, True), "fence": (False, False, False),
}  # fmt: skip
_STEP = re.compile(
    r"(?:(?P<register>r\d+) *= *)?(?P<kind>load|store|add|fence)(?: (?P<location>[a-z]))??(?: (?P<value>\d+))?"
    r"(?: (?P<order>[a-z_]+) (?P<scope>[a-z]+))?"
)


class LitmusStep(NamedTuple):
    """An operation of a thread."""

    kind: str  # load, store, add or fence
    location: str = ""
    value: int = 0  # stored or added
    register: str = ""  # register for the loaded value
    order: Order | None = None  # None: a plain access
    scope: Scope = Scope.SYSTEM

    def __str__(self) -> str:
        named = f"{self.register} = " if self.register else ""
        value = f" {self.value}" if self.kind in ("store", "add") else ""
        place = f" {self.location}" if self.location else ""
        return f"{named}{self.kind}{place}{value}" + (f" {self.order} {self.scope.words}" if self.order else "")


Result = tuple[tuple[str, int], ...]  # registers' values, by name


class RegisterComparison(NamedTuple):
    """A comparison of a register with a value."""

    register: str
    equal: bool  # False: it differs
    value: int

    def __str__(self) -> str:
        return f"{self.register}{'=' if self.equal else '!='}{self.value}"


class Claim(NamedTuple):
    """Condition of a test in the form of herdtools."""

    quantifier: str  # exists, ~exists or forall
    alternatives: tuple[tuple[RegisterComparison, ...], ...]  # one has only comparisons that hold

    def __str__(self) -> str:
        return f"{self.quantifier} {' or '.join(' '.join(map(str, one)) for one in self.alternatives)}"

    def fits(self, result: Result) -> bool:
        """True if a result meets the condition."""
        values = dict(result)
        return any(all((values[name] == value) == equal for name, equal, value in one) for one in self.alternatives)

    def holds(self, results: Iterable[Result]) -> bool:
        """True if the claim is true of all results that there are."""
        fits = [self.fits(result) for result in results]
        return {"exists": any(fits), "~exists": not any(fits), "forall": all(fits)}[self.quantifier]


class LitmusTest(NamedTuple):
    """A parsed and valid test."""

    name: str
    place: str
    threads: tuple[tuple[LitmusStep, ...], ...]
    never: tuple[Result, ...] = ()
    sometimes: tuple[Result, ...] = ()
    claim: Claim | None = None

    @property
    def locations(self) -> list[str]:
        """Locations that are accessed, sorted."""
        return sorted({step.location for thread in self.threads for step in thread if step.location})

    @property
    def registers(self) -> list[str]:
        """Registers that are loaded, sorted by number."""
        found = {step.register for thread in self.threads for step in thread if step.register}
        return sorted(found, key=lambda name: int(name[1:]))

    def __str__(self) -> str:
        lines = [f"name {self.name}", f"place {self.place}"]
        for thread in self.threads:
            lines += ["thread", *(f"  {step}" for step in thread)]
        lines += [f"never {format_result(result)}" for result in self.never] + [
            f"sometimes {format_result(result)}" for result in self.sometimes
        ]
        return "\n".join(lines + ([f"# {self.claim}"] if self.claim else [])) + "\n"


def format_result(result: Result) -> str:
    return " ".join(f"{name}={value}" for name, value in result)


def matches(result: Result, wanted: Result) -> bool:
    """True if a result has all the values that another names."""
    return set(wanted) <= set(result)


def parse(text: str, file: str) -> LitmusTest:
    """Parses a test; raises UsageError, which names the file and the line."""
    name, place, threads, never, sometimes = file, APART, list[list[LitmusStep]](), list[Result](), list[Result]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = " ".join(raw.partition("#")[0].split())
        word, _, rest = line.partition(" ")
        try:
            if word == "name":
                name = rest
            elif word == "place" and rest in NEEDED:
                place = rest
            elif line == "thread" and len(threads) < THREADS:
                threads.append([])
            elif word in ("never", "sometimes"):
                (never if word == "never" else sometimes).append(_result(rest))
            elif line:
                if not threads or len(threads[-1]) == STEPS:
                    raise ValueError(f"a step outside a thread, or more than {STEPS} in one")
                threads[-1].append(_step(line))
        except ValueError as error:
            raise UsageError(f"{file}:{number}: {error}") from None
    test = LitmusTest(name, place, tuple(map(tuple, threads)), tuple(never), tuple(sometimes))
    demand(test, file)
    return test


def demand(test: LitmusTest, file: str) -> None:
    """Raises UsageError for a test that is too large, or has a register twice or none."""
    loads = [step.register for thread in test.threads for step in thread if step.register]
    unknown = {name for result in (*test.never, *test.sometimes) for name, _ in result} - set(loads)
    if len(test.threads) > THREADS or any(len(thread) > STEPS for thread in test.threads):
        raise UsageError(f"{file}: at most {THREADS} threads of {STEPS} steps")
    if not loads or not all(test.threads):
        raise UsageError(f"{file}: a litmus test has threads with steps, and a load in some")
    if len(set(loads)) < len(loads) or unknown:
        raise UsageError(f"{file}: each register is loaded once: {', '.join(sorted(unknown) or loads)}")
    if len(test.locations) > LOCATIONS:
        raise UsageError(f"{file}: at most {LOCATIONS} locations")


def _step(line: str) -> LitmusStep:
    found = _STEP.fullmatch(line)
    if found is None:
        raise ValueError(f"cannot read `{line}`: see `simgpu help litmus`")
    kind, register, location, value, order, scope = found.group("kind", "register", "location", "value", "order", "scope")
    order = "monotonic" if order == "relaxed" else order
    if order is not None and (order not in ORDERS_OF[kind] or scope not in SCOPES):
        raise ValueError(f"a {kind} has no order {order}, or there is no scope {scope}: {', '.join((*ORDERS_OF[kind], *SCOPES))}")
    has = register is not None, location is not None, value is not None
    if has != NEEDS[kind] or (order is None and kind in ("add", "fence")):
        raise ValueError(f"`{line}` has too few or too many words: see `simgpu help litmus`")
    if not 0 <= int(value or 0) < 1 << 16:
        raise ValueError("values are below 65536")
    chosen = SCOPES[scope] if scope else Scope.SYSTEM
    return LitmusStep(kind, location or "", int(value or 0), register or "", cast(Order | None, order), chosen)


def _result(text: str) -> Result:
    found = re.findall(r"(r\d+)=(\d+)", text)
    if not found or " ".join(f"{name}={value}" for name, value in found) != text:
        raise ValueError(f"cannot read the result `{text}`: r0=1 r1=0")
    return tuple(sorted(((name, int(value)) for name, value in found), key=lambda one: int(one[0][1:])))
