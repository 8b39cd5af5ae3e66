"""Table of the memory model, compared with LLVM's code for every atomic and fence."""

from __future__ import annotations

import functools
import re
from itertools import product

import pytest

from simgpu.hardware.architectures import SINCE_GFX90A, TARGETS
from simgpu.hardware.isa import decode
from simgpu.hardware.memory_model import (
    BITS,
    CACHE_OPERATIONS,
    LDS_SCOPE,
    CacheOperation,
    Lowering,
    Order,
    Scope,
    cache_operation,
    lowering,
    scope_of,
)
from tests.support.clang import assemble, emitted

SCOPES = {Scope.WAVEFRONT: "wavefront", Scope.WORKGROUP: "workgroup", Scope.AGENT: "agent", Scope.SYSTEM: ""}
ORDERS: dict[str, tuple[Order, ...]] = {
    "load": ("monotonic", "acquire", "seq_cst"),
    "store": ("monotonic", "release", "seq_cst"),
    "atomic": ("monotonic", "acquire", "release", "acq_rel", "seq_cst"),
    "fence": ("acquire", "release", "acq_rel", "seq_cst"),
}
SPACES = {"global": 1, "flat": 0, "local": 3}
# The instructions of the access itself, by kind and space.
ACCESS = {
    "load": r"(global|flat)_load_dword|ds_read_b32", "store": r"(global|flat)_store_dword|ds_write_b32",
    "atomic": r"(global|flat)_atomic_add|ds_add(_rtn)?_u32",
}  # fmt: skip


def _sync(scope: Scope) -> str:
    return f'syncscope("{SCOPES[scope]}") ' if SCOPES[scope] else ""


def _body(kind: str, order: str, scope: Scope, space: int, returns: bool) -> str:
    place = f"ptr addrspace({space}) %p"
    use = " store i32 %v, ptr addrspace(1) %r"
    if kind == "fence":
        return f" fence {_sync(scope)}{order}"
    if kind == "load":
        return f" %v = load atomic i32, {place} {_sync(scope)}{order}, align 4\n{use}"
    if kind == "store":
        return f" store atomic i32 7, {place} {_sync(scope)}{order}, align 4"
    return f" %v = atomicrmw add {place}, i32 1 {_sync(scope)}{order}" + (f"\n{use}" if returns else "")


def _cases() -> list[tuple[str, Order, Scope, str, bool]]:
    """Returns kind, order, scope, address space, and whether the old value is used."""
    found: list[tuple[str, Order, Scope, str, bool]] = []
    for kind, orders in ORDERS.items():
        spaces = ["global"] if kind == "fence" else list(SPACES)
        for order, scope, space, returns in product(orders, Scope, spaces, (True, False) if kind == "atomic" else (True,)):
            found.append((kind, order, scope, space, returns))
    return found


@functools.cache
def compiled(target: str, split: bool) -> dict[str, list[str]]:
    """Returns the memory and wait instructions of a function for each case, by its name: a plain store, the case, a plain load."""
    text = []
    for kind, order, scope, space, returns in _cases():
        number = SPACES[space]
        text.append(
            f"define void @{_name(kind, order, scope, space, returns)}(ptr addrspace({number}) %p, ptr addrspace(1) %q, "
            f"ptr addrspace(1) %r, ptr addrspace(1) %s) {{\n store i32 1, ptr addrspace(1) %q\n"
            f"{_body(kind, order, scope, number, returns)}\n"
            " %w = load i32, ptr addrspace(1) %s\n store i32 %w, ptr addrspace(1) %q\n ret void\n}"
        )
    printed = emitted("\n".join(text), target, *(("-Xclang", "-target-feature", "-Xclang", "+tgsplit") if split else ()))
    found = {}
    for name, body in re.findall(r"^(\w+):.*?\n(.*?)s_setpc_b64", printed, re.DOTALL | re.MULTILINE):
        lines = (line.split(";")[0].split() for line in body.splitlines())
        found[name] = [" ".join(words) for words in lines if words and re.match(r"(global|flat|ds|buffer)_|s_waitcnt", words[0])]
    return found


def _name(kind: str, order: str, scope: Scope, space: str, returns: bool) -> str:
    return f"{kind}_{order}_{scope.words}_{space}_{int(returns)}"


def _observed(kind: str, lines: list[str]) -> Lowering:
    """Returns LLVM's code in the form of the table: the first plain store, then the case, then the last plain load and store."""
    first = next(at for at, line in enumerate(lines) if re.match(r"global_store_dword v\[", line))
    rest = lines[first + 1 :]
    caches = r"buffer_(wb|inv)"
    if kind == "fence":
        at = next(i for i, line in enumerate(rest) if re.match(r"global_load_dword", line))
        middle: list[str] = rest[:at]
        before = tuple(line for line in middle if line.startswith("buffer_wbl2"))
        after = tuple(line for line in middle if re.match(caches, line) and line not in before)
        return Lowering(before, any("vmcnt(0)" in line for line in middle), (), after)
    at = next(i for i, line in enumerate(rest) if re.match(ACCESS[kind], line))
    before = tuple(line for line in rest[:at] if re.match(caches, line))
    bits = tuple(bit for bit in BITS if bit in rest[at].split())
    end = next(i for i, line in enumerate(rest) if i > at and re.match(r"global_load_dword", line))
    after = tuple(line for line in rest[at + 1 : end] if re.match(caches, line))
    return Lowering(before, any("vmcnt(0)" in line for line in rest[:at]), bits, after)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("split", [False, True])
def test_the_table_is_what_llvm_emits(target: str, split: bool) -> None:
    if split and target not in SINCE_GFX90A:
        pytest.skip("tgsplit came with gfx90a")
    found = compiled(target, split)
    wrong = []
    for kind, order, scope, space, returns in _cases():
        seen = _observed(kind, found[_name(kind, order, scope, space, returns)])
        local = space == "local"
        wanted = lowering(target, kind, order, min(scope, LDS_SCOPE) if local else scope, split)  # type: ignore[arg-type]
        returning = {"glc", "sc0"} if kind == "atomic" and returns else set()
        bits = tuple(bit for bit in seen.bits if bit not in returning)
        if local:
            wanted = wanted._replace(bits=())
        if seen._replace(bits=bits) != wanted:
            wrong.append((kind, order, scope.words, space, seen, wanted))
    assert not wrong, "\n".join(map(str, wrong[:20])) + f"\n{len(wrong)} of {len(_cases())}"


@pytest.mark.parametrize("target", TARGETS)
def test_scopes_of_what_llvm_emits_are_no_narrower_than_asked(target: str) -> None:
    found = compiled(target, False)
    for kind, order, scope, space, returns in _cases():
        if kind != "fence" and space == "global":
            bits = _observed(kind, found[_name(kind, order, scope, space, returns)]).bits
            assert scope_of(target, kind, bits) >= scope  # type: ignore[arg-type]


def test_hints_for_replacement_choose_no_scope() -> None:
    assert scope_of("gfx942", "load", ("nt",)) == Scope.WAVEFRONT
    assert scope_of("gfx942", "store", ("sc1", "nt")) == Scope.AGENT
    assert scope_of("gfx90a", "load", ("slc",)) == Scope.WORKGROUP
    assert scope_of("gfx90a", "atomic", ("glc",)) == Scope.SYSTEM
    assert scope_of("gfx942", "atomic", ("sc0",)) == Scope.AGENT


@pytest.mark.parametrize("row", CACHE_OPERATIONS, ids=lambda row: f"{row.targets[0]}-{row.mnemonic}-{''.join(row.bits)}")
def test_each_cache_operation_is_an_instruction(row: CacheOperation) -> None:
    text = " ".join((row.mnemonic, *row.bits))
    for target in row.targets:
        (made,) = assemble([text], target)
        assert made is not None
        inst = decode(made.code, 0, target)
        assert cache_operation(target, inst.mnemonic, [bit for bit in BITS if inst.mods.get(bit)]) is row
