"""A device's caches, and the effects of the memory instructions of a litmus test's threads, by `hardware.memory_model`.

Each thread is a wave on a CU with an L1. Before gfx942 all CUs share an L2, which is the device's memory; since gfx942 each
workgroup has an XCD with its own L2. Instructions issue in order. A CU executes operations of one location in the order of issue,
those of different locations in any order. Each takes effect at once, some time before the wave's wait for it ends. Caches hold old
copies of everything at first, and may lose a clean line, or write a dirty one back, at any time. So a schedule is a choice of

* which thread issues its next instruction, or which outstanding operation is done;
* whether a load that may hit a cache does, and which XCDs' dirty lines were written back before memory is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simgpu.hardware.architectures import GFX90A, SINCE_GFX942
from simgpu.hardware.memory_model import L2_ONLY, Scope
from simgpu.tools.litmus.compiled import RESULTS, MachineStep
from simgpu.tools.litmus.form import DEVICES, NEEDED, TOGETHER

Copies = tuple[tuple[tuple[int, str], int], ...]  # values by cache and location, sorted


class OutstandingAccess(NamedTuple):
    """An operation that was issued and is not done."""

    thread: int
    number: int  # among its wave's operations that vmcnt counts
    step: MachineStep


class MemoryState(NamedTuple):
    """A state: everything that the rest of a schedule depends on."""

    steps: tuple[int, ...]  # instructions issued, by thread
    issued: tuple[int, ...]  # issued operations that vmcnt counts, by thread
    outstanding: tuple[OutstandingAccess, ...]  # in order of issue
    memory: Copies  # values in memory; the cache number is 0
    near: Copies  # by CU: L1
    clean: Copies  # by XCD: L2 lines that loads filled
    dirty: Copies  # by XCD: L2 lines not yet written back
    registers: tuple[tuple[str, int], ...]


class CacheModel:
    """Transitions of the caches.

    threads: the steps of each thread. place: where the threads are: "together", "apart" or "devices" (`form`).
    """

    def __init__(self, target: str, threads: list[list[MachineStep]], place: str, locations: list[str]) -> None:
        self.threads = threads
        self.places = places = [0] * len(threads) if place == TOGETHER else list(range(len(threads)))  # workgroups
        self.far = max(Scope.AGENT, NEEDED[place])  # the scope that passes all caches between threads
        # True if each workgroup has its own L2, which holds plain stores until it writes them back. An L2 of gfx90a does so only
        # with another device's memory.
        self.apart = target in SINCE_GFX942 or (target in GFX90A and place == DEVICES)
        groups = sorted(set(places))
        old = tuple(((group, location), 0) for group in groups for location in locations)
        self.first = MemoryState(
            (0,) * len(threads), (0,) * len(threads), (), tuple(((0, location), 0) for location in locations),
            tuple(sorted(old)), tuple(sorted(old)) if self.apart else (), (), (),
        )  # fmt: skip

    def is_final(self, state: MemoryState) -> bool:
        return all(at == len(steps) for at, steps in zip(state.steps, self.threads, strict=True)) and not state.outstanding

    def following(self, state: MemoryState) -> Iterator[MemoryState]:
        """Yields the states after each choice.

        If waves are on separate CUs, the order in which they issue is no choice: no other wave can observe an operation before it
        is done. So the first wave that can issue does, except an invalidation.
        """
        if len(set(self.places)) > 1:
            for thread, steps in enumerate(self.threads):
                if state.steps[thread] < len(steps) and steps[state.steps[thread]].kind != "invalidate":
                    found = list(self._issue(state, thread, steps[state.steps[thread]]))
                    if found:
                        yield from found
                        return
        for thread, steps in enumerate(self.threads):
            if state.steps[thread] < len(steps):
                yield from self._issue(state, thread, steps[state.steps[thread]])
        for at, operation in enumerate(state.outstanding):
            if self._may_be_done(state, at, operation):
                rest = (*state.outstanding[:at], *state.outstanding[at + 1 :])
                yield from self._do(state._replace(outstanding=rest), operation)

    # -- issue -----------------------------------------------------------------------------------

    def _issue(self, state: MemoryState, thread: int, step: MachineStep) -> Iterator[MemoryState]:
        if step.kind == "wait":
            if sum(one.thread == thread for one in state.outstanding) > step.left:
                return
        after = state._replace(steps=_plus(state.steps, thread))
        if step.location == RESULTS or step.kind == "wait":
            yield after
            return
        group = self.places[thread]
        if step.kind == "invalidate":
            yield self._invalidate(after, group, step)
            return
        operation = OutstandingAccess(thread, state.issued[thread], step)
        after = after._replace(issued=_plus(state.issued, thread))
        if len(set(self.places)) == 1:  # all threads share one L1, which sees operations in the order of issue
            yield from self._do(after, operation)
        else:
            yield after._replace(outstanding=(*state.outstanding, operation))

    def _invalidate(self, state: MemoryState, group: int, step: MachineStep) -> MemoryState:
        only_far = step.text.startswith(L2_ONLY)
        near = state.near if only_far or step.scope < Scope.AGENT else _drop_cache(state.near, group)
        return state._replace(near=near, clean=_drop_cache(state.clean, group) if step.scope >= self.far else state.clean)

    # -- operations ------------------------------------------------------------------------------

    def _may_be_done(self, state: MemoryState, at: int, operation: OutstandingAccess) -> bool:
        """True unless an earlier operation must be done first: of its CU at its location, or one that a write-back covers."""
        for earlier in state.outstanding[:at]:
            if self.places[earlier.thread] != self.places[operation.thread]:
                continue
            if operation.step.kind == "write back":
                if earlier.thread == operation.thread:
                    return False
            elif earlier.step.location == operation.step.location:
                return False
        return True

    def _do(self, state: MemoryState, operation: OutstandingAccess) -> Iterator[MemoryState]:
        step, group = operation.step, self.places[operation.thread]
        if step.kind == "write back":
            yield self._written_back(state, group) if step.scope >= self.far else state
        elif step.kind == "store":
            yield self._store(state, group, step)
        elif step.kind == "atomic":
            for reached in self._memory_as_seen(self._written_back(state, group, step.location), group, step.location):
                old = dict(reached.memory)[0, step.location]
                memory = dict(reached.memory) | {(0, step.location): old + step.value}
                keys = (group, step.location)
                yield reached._replace(
                    memory=_sort(memory), near=_drop_key(reached.near, keys), clean=_drop_key(reached.clean, keys),
                    registers=_with(reached.registers, step.register, old),
                )  # fmt: skip
        else:
            yield from self._load(state, group, step)

    def _store(self, state: MemoryState, group: int, step: MachineStep) -> MemoryState:
        key = group, step.location
        state = state._replace(near=_sort(dict(state.near) | {key: step.value}))  # written through the L1
        if self.apart and (step.scope < self.far or (step.asked is None and self.far == Scope.SYSTEM)):
            return state._replace(dirty=_sort(dict(state.dirty) | {key: step.value}), clean=_drop_key(state.clean, key))
        memory = _sort(dict(state.memory) | {(0, step.location): step.value})
        clean = _sort(dict(state.clean) | {key: step.value}) if self.apart else ()
        return state._replace(memory=memory, clean=clean, dirty=_drop_key(state.dirty, key))

    def _load(self, state: MemoryState, group: int, step: MachineStep) -> Iterator[MemoryState]:
        key = group, step.location
        near, clean, dirty = dict(state.near), dict(state.clean), dict(state.dirty)
        if step.scope < Scope.AGENT and key in near:
            yield state._replace(registers=_with(state.registers, step.register, near[key]))
        if key in dirty:
            yield self._fill(state, key, step, dirty[key])
            state = self._written_back(state, group, step.location)  # or first, so that another XCD's value may replace it
            clean = dict(state.clean)
        if step.scope < self.far and key in clean:
            yield self._fill(state, key, step, clean[key])
        for reached in self._memory_as_seen(state, group, step.location):
            yield self._fill(reached, key, step, dict(reached.memory)[0, step.location])

    def _fill(self, state: MemoryState, key: tuple[int, str], step: MachineStep, value: int) -> MemoryState:
        """Returns the state with a loaded value, and copies of it in the caches that the load goes through."""
        after = state._replace(registers=_with(state.registers, step.register, value))
        if step.scope >= self.far:
            return after
        clean = after.clean if not self.apart or key in dict(after.dirty) else _sort(dict(after.clean) | {key: value})
        near = _sort(dict(after.near) | {key: value}) if step.scope < Scope.AGENT else after.near
        return after._replace(near=near, clean=clean)

    def _memory_as_seen(self, state: MemoryState, group: int, location: str) -> Iterator[MemoryState]:
        """Yields the states in which some other XCDs' dirty lines were written back, in any order, before memory is read."""
        yield state
        for other in sorted({cache for (cache, place), _ in state.dirty if place == location and cache != group}):
            yield from self._memory_as_seen(self._written_back(state, other, location), group, location)

    def _written_back(self, state: MemoryState, group: int, location: str | None = None) -> MemoryState:
        memory, dirty, clean = dict(state.memory), dict(state.dirty), dict(state.clean)
        for key in [key for key in dirty if key[0] == group and location in (None, key[1])]:
            memory[0, key[1]] = clean[key] = dirty.pop(key)
        return state._replace(memory=_sort(memory), dirty=_sort(dirty), clean=_sort(clean))


def _plus(counts: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*counts[:at], counts[at] + 1, *counts[at + 1 :])


def _sort(copies: dict[tuple[int, str], int]) -> Copies:
    return tuple(sorted(copies.items()))


def _drop_cache(copies: Copies, cache: int) -> Copies:
    return tuple(item for item in copies if item[0][0] != cache)


def _drop_key(copies: Copies, key: tuple[int, str]) -> Copies:
    return tuple(item for item in copies if item[0] != key)


def _with(registers: tuple[tuple[str, int], ...], name: str, value: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((*registers, (name, value))))
