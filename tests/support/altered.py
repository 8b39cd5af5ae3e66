"""Kernels that are broken on purpose: an instruction of their source is another one."""

from __future__ import annotations


def altered(source: str, old: str, new: str, number: int = 1) -> str:
    """Returns a source with one occurrence of a text, from 1 on, replaced."""
    parts = source.split(old)
    assert len(parts) > number, "the emitter no longer emits this instruction: choose another one"
    return old.join(parts[:number]) + new + old.join(parts[number:])
