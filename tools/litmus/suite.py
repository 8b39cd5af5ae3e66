"""Litmus tests that come with simgpu: ten shapes at each scope, right ones and each of their weakenings.

A shape is a text with names for its fences: `RELEASE`, `ACQUIRE` and `FULL`. Weakening removes a fence or makes it narrower. A
weakened test may end with results that the right one never has, if the model allows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simgpu.hardware.memory_model import Scope
from simgpu.tools.litmus.form import NEEDED, TOGETHER, LitmusStep, LitmusTest, parse


class Shape(NamedTuple):
    """A test without a scope."""

    name: str  # as in the literature
    text: str  # its threads
    never: tuple[str, ...]  # results that it must not have


ATOMIC = "monotonic SCOPE"
# The second thread's fence releases w and acquires x: each of its instructions is needed.
RELAY = (
    "thread\nstore x 1\nRELEASE\nstore y 1 A\nthread\nstore w 1\nr0 = load y A\nBOTH\nr1 = load x\nstore z 1 A\n"
    "thread\nr2 = load z A\nACQUIRE\nr3 = load w\n"
)
SHAPES = (
    Shape("mp", "thread\nstore x 1\nRELEASE\nstore y 1 A\nthread\nr0 = load y A\nACQUIRE\nr1 = load x\n", ("r0=1 r1=0",)),
    Shape(
        "mp.rmw", "thread\nstore x 1\nRELEASE\nr2 = add y 1 A\nthread\nr0 = add y 1 A\nACQUIRE\nr1 = load x\n", ("r0=1 r1=0 r2=0",)
    ),
    Shape(
        "mp.access", "thread\nstore x 1\nstore y 1 release SCOPE\nthread\nr0 = load y acquire SCOPE\nr1 = load x\n", ("r0=1 r1=0",)
    ),
    Shape("relay", RELAY.replace("BOTH", "fence acq_rel SCOPE"), ("r0=1 r1=0", "r2=1 r3=0")),
    Shape("relay.full", RELAY.replace("BOTH", "FULL"), ("r0=1 r1=0", "r2=1 r3=0")),
    Shape("sb", "thread\nstore x 1 A\nFULL\nr0 = load y A\nthread\nstore y 1 A\nFULL\nr1 = load x A\n", ("r0=0 r1=0",)),
    Shape("lb", "thread\nr0 = load x A\nRELEASE\nstore y 1 A\nthread\nr1 = load y A\nRELEASE\nstore x 1 A\n", ("r0=1 r1=1",)),
    Shape(
        "iriw", "thread\nstore x 1 A\nthread\nstore y 1 A\nthread\nr0 = load x A\nFULL\nr1 = load y A\n"
        "thread\nr2 = load y A\nFULL\nr3 = load x A\n", ("r0=1 r1=0 r2=1 r3=0",),
    ),
    Shape("corr", "thread\nstore x 1 A\nthread\nr0 = load x A\nr1 = load x A\n", ("r0=1 r1=0",)),
    Shape("cowr", "thread\nstore x 1 A\nr0 = load x A\nthread\nstore x 2 A\nr1 = load x A\n", ("r0=0",)),
)  # fmt: skip
# In lb each fence follows a load and precedes a store: it acquires for the load and releases for the store.
FENCES = {"RELEASE": "release", "ACQUIRE": "acquire", "FULL": "seq_cst"}


def right(shape: Shape, scope: Scope) -> LitmusTest:
    """Returns a shape at a scope, its threads as far apart as the scope reaches."""
    text = shape.text.replace("A\n", f"{ATOMIC}\n")
    for word, order in FENCES.items():
        made = "acq_rel" if shape.name == "lb" and word == "RELEASE" else order
        text = text.replace(f"{word}\n", f"fence {made} SCOPE\n")
    place = next(place for place, needed in NEEDED.items() if needed == scope)
    head = f"name {shape.name}.{scope.words}\nplace {place}\n"
    never = "".join(f"never {result}\n" for result in shape.never)
    return parse(head + text.replace("SCOPE", scope.words) + never, shape.name)


def weaken(test: LitmusTest) -> Iterator[LitmusTest]:
    """Yields the test without one fence, or without one access's order, or with all scopes narrower than between its
    workgroups."""
    for number, thread in enumerate(test.threads):
        for at, step in enumerate(thread):
            if step.kind == "fence":
                yield _with_thread(test, number, (*thread[:at], *thread[at + 1 :]), f"no-{step.order}{number}")
            elif step.order not in (None, "monotonic"):
                relaxed = (*thread[:at], step._replace(order="monotonic"), *thread[at + 1 :])
                yield _with_thread(test, number, relaxed, f"relaxed{number}")
    if test.place != TOGETHER:
        threads = tuple(tuple(_narrow(step) for step in thread) for thread in test.threads)
        yield test._replace(name=f"{test.name}.narrow", threads=threads, never=())


def _with_thread(test: LitmusTest, number: int, thread: tuple[LitmusStep, ...], name: str) -> LitmusTest:
    threads = (*test.threads[:number], thread, *test.threads[number + 1 :])
    return test._replace(name=f"{test.name}.{name}", threads=threads, never=())


def _narrow(step: LitmusStep) -> LitmusStep:
    return step._replace(scope=Scope(step.scope - 1)) if step.order else step


def suite() -> Iterator[LitmusTest]:
    """Yields all tests: each right one, followed by its weakenings."""
    for shape in SHAPES:
        for scope in (Scope.WORKGROUP, Scope.AGENT, Scope.SYSTEM):
            test = right(shape, scope)
            yield test
            yield from weaken(test)
