"""Order of a function's blocks: each loop's together, so that paths meet before they go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simgpu.proof.ir.syntax import Function


def block_order(function: Function) -> list[str]:
    """Returns the names of the blocks that can be reached: a weak topological order (Bourdoncle 1993)."""
    following = {block.name: block.instructions[-1].targets if block.instructions else () for block in function.blocks}
    return _arrange(set(following), [function.blocks[0].name], following)


def _arrange(nodes: set[str], starts: Sequence[str], following: Mapping[str, Sequence[str]]) -> list[str]:
    order: list[str] = []
    for component in _components(nodes, starts, following):
        head = component[0]
        order.append(head)
        if len(component) > 1:
            inside = set(component) - {head}
            order += _arrange(inside, [each for each in following[head] if each in inside], following)
    return order


def _components(nodes: set[str], starts: Sequence[str], following: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Returns the strongly connected components, a predecessor first; in each, the block that is met first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    held: set[str] = set()
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        held.add(node)
        for other in following[node]:
            if other in nodes and other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in held:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            held.difference_update(stack[at:])
            del stack[at:]

    for node in starts:
        if node not in index:
            visit(node)
    return found[::-1]
