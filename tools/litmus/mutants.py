"""Compiled threads of a litmus test without one instruction, or without one bit that chooses a scope."""

from __future__ import annotations

from collections.abc import Iterator

from simgpu.hardware.memory_model import L2_ONLY, Kind, Scope, cache_operation, scope_of
from simgpu.tools.litmus.compiled import RESULTS, MachineStep

Threads = list[list[MachineStep]]


def mutants(target: str, threads: Threads) -> Iterator[tuple[str, Threads]]:
    """Yields mutants: a description of the removed wait, cache operation or bit of an access, and the remaining threads. Nothing
    after a thread's last access is removed."""
    for number, thread in enumerate(threads):
        last = max(at for at, step in enumerate(thread) if step.location not in ("", RESULTS))
        for at, step in enumerate(thread[:last + 1]):
            where = f"thread {number}, without "
            if step.kind in ("wait", "write back", "invalidate") and not step.text.startswith(L2_ONLY):
                yield where + step.text, _with(threads, number, at, None)
            for bit in step.bits:
                weak = _without_bit(target, step, bit)
                if weak is not None:
                    yield f"{where}{bit} of {step.text}", _with(threads, number, at, weak)


def _with(threads: Threads, number: int, at: int, step: MachineStep | None) -> Threads:
    thread = [*threads[number][:at], *([] if step is None else [step]), *threads[number][at + 1 :]]
    return [*threads[:number], thread, *threads[number + 1 :]]


def _without_bit(target: str, step: MachineStep, bit: str) -> MachineStep | None:
    """Returns the step without a bit; None if its scope stays the same."""
    bits = tuple(one for one in step.bits if one != bit)
    if step.kind in ("write back", "invalidate"):
        row = cache_operation(target, step.text.split()[0], bits)
        scope = row.scope if row else Scope.WAVEFRONT
    else:
        kind: Kind = "load" if step.kind == "load" else "store" if step.kind == "store" else "atomic"
        scope = scope_of(target, kind, bits)
    if scope == step.scope:
        return None
    return step._replace(bits=bits, scope=scope)
