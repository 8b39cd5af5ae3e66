"""Control flow: branch targets match LLVM's labels, edges match the text, blocks match every path."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.code_object import CodeObject
from simgpu.hardware.isa import TARGETS, decode
from simgpu.hardware.isa.code.flow import Blocks, branch_target, falls_through, successors
from simgpu.hardware.isa.kinds import ControlKind
from tests.support.kernels import KernelText, assemble

# Lines and their edges: to the next line, to the label.
STRAIGHT = ("s_nop 0", "v_mov_b32 v1, 0", "s_mov_b32 s4, 0x12345678", "v_add_f64 v[2:3], v[4:5], v[6:7]", "s_barrier")
FORKED = (
    "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz", "s_cbranch_execnz",
    "s_cbranch_cdbgsys", "s_cbranch_cdbguser", "s_call_b64 s[8:9],",
)  # fmt: skip
ENDING = ("s_endpgm", "s_trap 2", "s_setpc_b64 s[8:9]")
LINES = 16
LENGTH = 14  # length of paths: at most 2 to its power of them

Edges = dict[int, list[int]]


def program(seed: int) -> tuple[str, Edges]:
    """Returns random lines, each with a label, and by the text the lines that may run after each."""
    source = random.Random(seed)
    lines: list[str] = []
    following: Edges = {LINES: []}  # the kernel's own s_endpgm
    for at in range(LINES):
        kind, target = source.choice("sssffffbe"), source.randrange(LINES)
        if kind == "s":
            lines.append(source.choice(STRAIGHT))
            following[at] = [at + 1]
        elif kind == "e":
            lines.append(source.choice(ENDING))
            following[at] = []
        else:
            lines.append(f"{source.choice(FORKED) if kind == 'f' else 's_branch'} line{target}")
            following[at] = [at + 1, target] if kind == "f" else [target]
    labelled = [f"line{at}:\n{line}" for at, line in enumerate(lines)]
    return "\n".join([*labelled, f"line{LINES}:"]), following


def paths(following: Edges, start: int) -> set[tuple[int, ...]]:
    """Returns all paths of LENGTH nodes, and shorter ones that end."""
    found: set[tuple[int, ...]] = set()
    pending = [(start,)]
    while pending:
        path = pending.pop()
        if len(path) == LENGTH or not following[path[-1]]:
            found.add(path)
        else:
            pending += [(*path, node) for node in following[path[-1]]]
    return found


def paths_by_blocks(blocks: Blocks) -> set[tuple[int, ...]]:
    found: set[tuple[int, ...]] = set()
    pending: list[tuple[tuple[int, ...], int]] = [((), blocks.entries[0])]
    while pending:
        path, block = pending.pop()
        path = (*path, *blocks.nodes[block])
        if len(path) >= LENGTH or not blocks.following[block]:
            found.add(path[:LENGTH])
        else:
            pending += [(path, other) for other in blocks.following[block]]
    return found


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    """Labels are at LLVM's addresses; blocks have the paths of the text."""
    target = TARGETS[seed % len(TARGETS)]
    text, following = program(seed)
    code = CodeObject.parse(assemble(target, KernelText("k", text)))
    entry = code.kernels["k"].entry
    places = [code.symbols[f"line{at}"].address for at in range(LINES + 1)]
    data = code.read(entry, places[-1] + 4 - entry)
    for at, place in enumerate(places):
        inst = decode(data, place - entry, target)
        assert successors(inst, place) == [places[other] for other in following[at]]
        alone = following[at] == [at + 1] and inst.spec.control is not ControlKind.BRANCH
        assert falls_through(inst.spec.control) == (alone or len(following[at]) == 2)
    distinct = [list(dict.fromkeys(following[at])) for at in range(LINES + 1)]
    assert paths_by_blocks(Blocks(distinct, [0])) == paths(dict(enumerate(distinct)), 0)


@pytest.mark.parametrize("target", TARGETS)
@given(opcode=st.sampled_from([2, 4, 5, 6, 7, 8, 9, 23, 24]), distance=st.integers(0, 0xFFFF), at=st.integers(0, 1 << 48))
def test_any_distance(target: str, opcode: int, distance: int, at: int) -> None:
    """A target outside the code, before address 0 or in the middle of an instruction is only computed."""
    word = struct.pack("<I", 0xBF800000 | opcode << 16 | distance)
    (signed,) = struct.unpack("<h", word[:2])
    inst = decode(word, 0, target)
    assert branch_target(inst, at) == at + 4 + 4 * signed
    assert successors(inst, at)[-1] == at + 4 + 4 * signed
    assert (len(successors(inst, at)) == 2) == (inst.spec.control is not ControlKind.BRANCH)


def test_instructions_without_a_target() -> None:
    for code in (0xBE801D04, 0xBF8A0003, 0xB0000005):  # s_setpc_b64, s_barrier 3, s_movk_i32 s0, 5
        assert branch_target(decode(struct.pack("<I", code), 0, "gfx942"), 100) is None


graphs = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.lists(st.lists(st.integers(0, count - 1), max_size=3, unique=True), min_size=count, max_size=count),
        st.lists(st.integers(0, count - 1), min_size=1, max_size=3),
    )
)


def reached(following: list[list[int]], starts: list[int]) -> set[int]:
    found: set[int] = set()
    pending = list(starts)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += following[node]
    return found


@given(graphs)
def test_blocks_of_any_graph(graph: tuple[list[list[int]], list[int]]) -> None:
    following, entries = graph
    blocks = Blocks(following, entries)
    inside = [node for line in blocks.nodes for node in line]
    assert sorted(inside) == sorted(reached(following, entries))
    assert [blocks.nodes[block][0] for block in blocks.entries] == entries
    ways = {(node, other) for node in inside for other in following[node]}
    within = {pair for line in blocks.nodes for pair in itertools.pairwise(line)}
    between = {(blocks.nodes[a][-1], blocks.nodes[b][0]) for a, after in enumerate(blocks.following) for b in after}
    assert within | between == ways and not within & between
    for node, other in within:  # no other edges enter or leave
        assert [a for a, b in ways if b == other] == [node] and following[node] == [other] and other not in entries
    for block, after in enumerate(blocks.following):
        for other in after:
            assert block in blocks.preceding[other]
            if other <= block:  # a loop
                assert block in reached(blocks.following, [other])
    assert sum(map(len, blocks.preceding)) == sum(map(len, blocks.following))
