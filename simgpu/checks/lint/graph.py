"""Builds the control flow of a kernel: every instruction that its entries reach, and its successors.

Branches go both ways. A call leads into its function, and the function's return leads only to the instruction after this call.
Functions are followed once for each call path; a recursive call leads into the call that is still open.

Indirect jumps and calls are followed if the address is computed from s_getpc_b64. Within a function, an indirect jump to an
unknown address counts as its return (AMDGPUUsage, "Non-Kernel Functions": the return address is in s[30:31]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simgpu.checks.lint import constants
from simgpu.checks.lint.steps import Decoder, LintStep
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa.code.flow import FORKS, INDIRECT, successors
from simgpu.hardware.isa.kinds import ControlKind

NOT_FOLLOWED, NO_INSTRUCTION = "not-followed", "no-instruction"
LIMIT = 200_000  # instructions of a kernel, each counted once for every call path
DEPTH = 64  # calls that are open at once


@dataclass(eq=False)
class CallPath:
    """A function on one call path, or the kernel itself."""

    entry: int
    caller: CallPath | None = None
    places: list[tuple[CallPath, int]] = field(default_factory=list)  # places that run after its return
    exits: list[int] = field(default_factory=list)  # nodes at which it returns
    made: dict[tuple[int, int], CallPath] = field(default_factory=dict)  # calls from it, by place and function

    def open(self, entry: int) -> CallPath | None:
        """Returns the open call of a function: this one or one that led here."""
        call: CallPath | None = self
        while call is not None and (call.entry != entry or call.caller is None):
            call = call.caller
        return call

    @property
    def depth(self) -> int:
        return 0 if self.caller is None else 1 + self.caller.depth


@dataclass(frozen=True)
class FlowRemark:
    """Remark about the control flow itself."""

    kind: str
    pc: int
    message: str


class Graph:
    """Instructions of a kernel as numbered nodes, with their successors."""

    def __init__(self, code: bytes, base: int, target: str, entries: Sequence[int], relocated: constants.Read) -> None:
        """Builds the graph. code: bytes from address `base` on. entries: addresses. relocated: returns bytes at an address that
        loading relocates, else None."""
        self.decoder = Decoder(code, base, target)
        self.steps: list[LintStep] = []  # instructions by node
        self.following: list[list[int]] = []  # successors by node
        self.calls: list[CallPath] = []  # functions by node
        self.remarks: dict[tuple[str, int], FlowRemark] = {}  # code that could not be followed
        self.unknown: set[int] = set()  # nodes followed by code that is not in the graph
        self.known: dict[int, LintStep] = {}  # by address
        self._nodes: dict[tuple[CallPath, int], int] = {}
        self._pending: list[int] = []
        self._indirect: list[int] = []
        self.kernel = CallPath(entries[0])
        # Nodes at which waves begin.
        self.entries = [node for pc in entries if (node := self._node(self.kernel, pc, pc)) is not None]
        self._grow(relocated)

    @property
    def complete(self) -> bool:
        """True if all code that may run was followed."""
        return not self.remarks

    # -- nodes -------------------------------------------------------------------------------------

    def _node(self, call: CallPath, pc: int, origin: int) -> int | None:
        """Returns the node of an address in a call, None if there is no instruction. origin: the address that leads there."""
        if (call, pc) in self._nodes:
            return self._nodes[call, pc]
        if len(self.steps) >= LIMIT:
            self._remark(NOT_FOLLOWED, origin, f"more than {LIMIT:,} instructions, by all ways of calls: the rest is not followed")
            return None
        step = self.known.get(pc)
        if step is None:
            try:
                step = self.decoder.step(pc)
            except SimError as error:
                self._remark(NO_INSTRUCTION, origin, f"a path leads from it to no instruction: {error}")
                return None
            self.known[pc] = step
        node = self._nodes[call, pc] = len(self.steps)
        self.steps.append(step)
        self.following.append([])
        self.calls.append(call)
        self._pending.append(node)
        return node

    def _remark(self, kind: str, pc: int, message: str) -> None:
        self.remarks.setdefault((kind, pc), FlowRemark(kind, pc, message))

    def _edge(self, node: int, call: CallPath, pc: int) -> None:
        other = self._node(call, pc, self.steps[node].pc)
        if other is not None and other not in self.following[node]:
            self.following[node].append(other)

    # -- edges -------------------------------------------------------------------------------------

    def _grow(self, relocated: constants.Read) -> None:
        """Follows all code that is reached. Recomputes the targets of indirect jumps as long as that leads to new code."""
        while self._pending:
            while self._pending:
                self._expand(self._pending.pop())
            if not self._indirect:
                break
            known = constants.flow(self.steps, self.following, self.entries, relocated)
            for node in self._indirect:
                at = known[node]
                if at is not None:
                    self._jump(node, constants.address(at, self.steps[node].inst.args.get("src0")))

    def _expand(self, node: int) -> None:
        step, call = self.steps[node], self.calls[node]
        if step.control in INDIRECT:
            self._indirect.append(node)
        elif step.control in FORKS:
            self._remark(NOT_FOLLOWED, step.pc, "branches of a fork are not followed")
        elif step.control is ControlKind.CALL:
            assert step.target is not None
            self._enter(node, step.target)
        else:
            for pc in successors(step.inst, step.pc):
                self._edge(node, call, pc)

    def _jump(self, node: int, address: int | None) -> None:
        """Follows an indirect jump or call whose address may be known."""
        step, call = self.steps[node], self.calls[node]
        if step.control is ControlKind.SWAPPC:
            if address is not None:
                self._enter(node, address)
            elif not self.following[node]:
                self._pass_over(node, "the function that it calls is not known: it is not followed")
        elif address is not None:
            self._edge(node, call, address)
        elif call.caller is not None:
            if node not in call.exits:
                call.exits.append(node)
                for place in call.places:
                    self._edge(node, *place)
        else:
            self._remark(NOT_FOLLOWED, step.pc, "its target is not known (a table of addresses?), so the jump is not followed")

    def _enter(self, node: int, entry: int) -> None:
        """Follows a call of a known function."""
        step, call = self.steps[node], self.calls[node]
        callee = call.open(entry) or call.made.get((step.pc, entry))
        if callee is None:
            if call.depth >= DEPTH:
                self._pass_over(node, f"more than {DEPTH} calls are open: it is not followed")
                return
            callee = call.made[step.pc, entry] = CallPath(entry, call)
        self._edge(node, callee, entry)
        if (call, step.next_address) not in callee.places:
            callee.places.append((call, step.next_address))
            for exit_ in callee.exits:
                self._edge(exit_, call, step.next_address)

    def _pass_over(self, node: int, why: str) -> None:
        self._remark(NOT_FOLLOWED, self.steps[node].pc, why)
        self.unknown.add(node)
        self._edge(node, self.calls[node], self.steps[node].next_address)
