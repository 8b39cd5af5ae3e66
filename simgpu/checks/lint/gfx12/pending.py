"""State of a place on gfx1250: operations that may be incomplete, and registers that they still write or read.

An entry holds the time of its operation on one counter. A counter's clock counts its operations and is 0 at this place. An
operation is complete after a wait for a count if enough others were issued since. Where paths meet, the latest time is kept: the
fewest operations since decide for all paths, as in `lint.outstanding`.

In expert scheduling mode (SCHED_MODE 2), the hardware does not keep the order of VGPR accesses between the vector ALU and memory
instructions. s_wait_alu does it. va_vdst counts vector instructions whose results are not written, and vm_vsrc counts memory
instructions whose VGPR operands are not read (LLVM, SIInsertWaitcnts, "expert scheduling mode").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

VA_VDST, VM_VSRC = "va_vdst", "vm_vsrc"
# Counters that complete in the order of issue; of others, only a wait for 0 tells that an operation is complete.
IN_ORDER = frozenset(("loadcnt", "storecnt", "dscnt", "asynccnt", "tensorcnt", "xcnt", VA_VDST, VM_VSRC))


TRANSFERS = frozenset(("asynccnt", "tensorcnt"))  # counters of transfers between memory and LDS
# Largest values of the two counters that s_wait_alu has (fields of 4 and 3 bits). The hardware holds back an instruction that
# does not fit its counter, so an older one is complete after as many younger ones: as with GFX9's counters (`waits.ROOM`).
ROOM = {VA_VDST: 15, VM_VSRC: 7}


class PendingOperation(NamedTuple):
    """An operation that may be incomplete. Comparison is by time first: the latest decides."""

    time: int  # on its counter
    at: int  # time in instructions
    pc: int
    other: int = 0  # vm_vsrc: time on the counter that counts the whole operation; LDS: 1 if a wait left the operation out


Key = tuple[str, int]  # a counter and a register's bit; for vm_vsrc and LDS, the operation's counter and the bit or address


@dataclass
class Pending:
    """Operations that may be incomplete at a place.

    writes: registers that they write, by counter and register
    results: VGPRs that vector instructions write, by register; empty outside expert mode
    sources: VGPRs that memory instructions read, by the counter of the operation and register; empty outside expert mode
    lds: accesses of LDS, by counter and address of the instruction
    expert: True if expert scheduling mode may be on
    signals: numbers of barrier signals without a wait, by barrier: all that paths may have
    waited: counters of transfers to LDS that any path has waited for
    """

    writes: dict[Key, PendingOperation] = field(default_factory=dict)
    results: dict[int, PendingOperation] = field(default_factory=dict)
    sources: dict[Key, PendingOperation] = field(default_factory=dict)
    lds: dict[Key, PendingOperation] = field(default_factory=dict)
    expert: bool = False
    signals: dict[int, frozenset[int]] = field(default_factory=dict)
    waited: frozenset[str] = frozenset()
    given: dict[str, int] = field(default_factory=dict)  # operations by counter since the block's start
    passed: int = 0  # instructions since then

    def copy(self) -> Pending:
        return Pending(
            dict(self.writes), dict(self.results), dict(self.sources), dict(self.lds), self.expert, dict(self.signals),
            self.waited, dict(self.given), self.passed,
        )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.writes) + len(self.results) + len(self.sources) + len(self.lds)

    def settle(self) -> Pending:
        """Returns the same state with all clocks at 0."""
        given, passed = self.given, self.passed

        def move(entry: PendingOperation, counter: str, other: str = "") -> PendingOperation:
            later = entry.other - given.get(other, 0) if other else entry.other
            return PendingOperation(entry.time - given.get(counter, 0), entry.at - passed, entry.pc, later)

        return Pending(
            {key: move(entry, key[0]) for key, entry in self.writes.items()},
            {bit: move(entry, VA_VDST) for bit, entry in self.results.items() if self.is_out(VA_VDST, entry)},
            {key: move(entry, VM_VSRC, key[0]) for key, entry in self.sources.items() if self.is_out(VM_VSRC, entry)},
            {key: move(entry, key[0]) for key, entry in self.lds.items()},
            self.expert,
            dict(self.signals),
            self.waited,
        )

    def join(self, other: Pending) -> Pending | None:
        """Returns the state by either path, None if it is this state."""
        signals = {
            barrier: self.signals.get(barrier, NO_SIGNALS) | other.signals.get(barrier, NO_SIGNALS)
            for barrier in self.signals.keys() | other.signals.keys()
        }
        made = Pending(
            _latest(self.writes, other.writes), _latest(self.results, other.results), _latest(self.sources, other.sources),
            _latest(self.lds, other.lds), self.expert or other.expert, signals, self.waited | other.waited,
        )  # fmt: skip
        return None if made == self else made

    def issue(self, counter: str, count: int = 1) -> int:
        """Counts an operation, and returns its time."""
        self.given[counter] = self.given.get(counter, 0) + count
        return self.given[counter]

    def is_out(self, counter: str, entry: PendingOperation) -> bool:
        """True if an operation may be incomplete: it fits the counter together with all younger ones."""
        return counter not in ROOM or self.given.get(counter, 0) - entry.time < ROOM[counter]

    def wait(self, counts: Mapping[str, int]) -> None:
        """Removes the operations that a wait completes. An operation that is complete has read its operands."""
        self.waited |= TRANSFERS.intersection(counts)
        for counter, count in counts.items():
            if count and counter not in IN_ORDER:
                continue
            last = self.given.get(counter, 0) - count
            if counter == VA_VDST:
                self.results = {bit: entry for bit, entry in self.results.items() if entry.time > last}
                continue
            if counter == VM_VSRC:
                self.sources = {key: entry for key, entry in self.sources.items() if entry.time > last}
                continue
            self.writes = {key: entry for key, entry in self.writes.items() if key[0] != counter or entry.time > last}
            self.lds = {
                key: entry._replace(other=1) if key[0] == counter else entry
                for key, entry in self.lds.items() if key[0] != counter or entry.time > last
            }  # fmt: skip
            if counter == "xcnt":  # addresses are translated, so they are read
                kept = {key: entry for key, entry in self.sources.items() if count or key[0] == "dscnt"}
                self.sources = kept
                continue
            self.sources = {key: entry for key, entry in self.sources.items() if key[0] != counter or entry.other > last}


NO_SIGNALS = frozenset({0})


def _latest(mine: dict, theirs: dict) -> dict:  # type: ignore[type-arg]
    return mine | {key: entry for key, entry in theirs.items() if key not in mine or entry > mine[key]}
