"""LDS accesses of a wave, the clocks that they lose to bank conflicts, and the least padding or swizzle of a buffer without
conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simgpu.debugger.snapshot import Snapshot
from simgpu.hardware.isa import text
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.timing_rules import lds_banks

INACTIVE = -1  # address of an inactive lane
LANES = 64
MOST_VISITS = 16  # of one access whose addresses are kept
ROWS = tuple(1 << bit for bit in range(5, 13))  # bytes of a buffer's row to try, in addition to the distances of lanes
MOST_STRIDES = 6  # distances of neighbouring lanes to try as rows, the most frequent first
MOST_PADDING = 64  # bytes after a row to try
MOST_BITS = 4  # of a row's number in a swizzle


@dataclass(frozen=True)
class LdsAccess:
    """An LDS access of one instruction. ds_read2 and ds_write2 have two, by `part`."""

    offset: int  # of the instruction from the kernel's first
    text: str
    kind: str  # "read" or "write"
    nbytes: int  # of a lane
    part: int
    addresses: np.ndarray  # int64 (visits, 64), bytes from the start of the workgroup's LDS; INACTIVE for inactive lanes

    def lost_clocks(self, target: str) -> int:
        """Clocks that all visits lose to bank conflicts."""
        return int(lost_clocks(target, self.kind, self.nbytes, self.addresses).sum())

    @property
    def span(self) -> tuple[int, int]:
        """First byte that it reaches and the end; (0, 0) if no lane is active."""
        active = self.addresses[self.addresses >= 0]
        return (int(active.min()), int(active.max()) + self.nbytes) if active.size else (0, 0)


def accesses(snapshots: Sequence[Snapshot]) -> list[LdsAccess]:
    """Returns the accesses of a wave's visits to LDS instructions, in the order of the code. Atomics count as writes."""
    found: dict[tuple[int, int], tuple[Instruction, int, list[np.ndarray]]] = {}
    for snapshot in snapshots:
        for part, (nbytes, addresses) in enumerate(_parts(snapshot)):
            visits = found.setdefault((snapshot.pc, part), (snapshot.instruction, nbytes, []))[2]
            if len(visits) < MOST_VISITS:
                visits.append(addresses)
    return [
        LdsAccess(offset, text(inst), _kind(inst), nbytes, part, np.stack(visits))
        for (offset, part), (inst, nbytes, visits) in sorted(found.items(), key=lambda entry: entry[0])
    ]


def join_waves(waves: Sequence[Sequence[LdsAccess]]) -> list[LdsAccess]:
    """Joins the accesses of several waves by instruction."""
    found: dict[tuple[int, int], list[LdsAccess]] = {}
    for access in (access for wave in waves for access in wave):
        found.setdefault((access.offset, access.part), []).append(access)
    return [replace(same[0], addresses=np.concatenate([one.addresses for one in same])) for _, same in sorted(found.items())]


def has_addresses(inst: Instruction) -> bool:
    """True if it accesses LDS at an address of each lane."""
    memory = inst.spec.memory
    own = not {Flag.ADDTID, Flag.SRC2} & inst.spec.flags and not inst.mods.get("gds")
    return inst.spec.encoding == "ds" and memory is not None and own and isinstance(inst.args.get("addr"), Reg)


def _parts(snapshot: Snapshot) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (bytes of a lane, addresses) of each place that a visit accesses."""
    inst = snapshot.instruction
    memory = inst.spec.memory
    if memory is None or not has_addresses(inst):
        return
    register = inst.args["addr"]
    assert isinstance(register, Reg)
    base = snapshot.registers(register)[0].astype(np.int64)
    active = np.array([snapshot.exec >> lane & 1 for lane in range(LANES)], bool)
    names = ("offset0", "offset1") if memory.count == 2 and memory.stride else ("offset",)
    scale = memory.stride * memory.bits // 8 if len(names) == 2 else 1
    nbytes = memory.bits * (1 if len(names) == 2 else memory.count) // 8
    for name in names:
        offset = int(inst.mods.get(name, 0)) * scale
        yield nbytes, np.where(active, (base + offset) & 0xFFFFFFFF, INACTIVE)


def _kind(inst: Instruction) -> str:
    assert inst.spec.memory is not None
    return "read" if inst.spec.memory.op == "load" else "write"


def lost_clocks(target: str, kind: str, nbytes: int, addresses: np.ndarray) -> np.ndarray:
    """Clocks (visits,) that accesses lose to bank conflicts: `lds_banks.conflicts` of each row of `addresses`, all at once."""
    rule = lds_banks.phases(target, kind, nbytes)
    dwords = max(1, nbytes // lds_banks.BANK_BYTES)
    total = np.zeros(len(addresses), np.int64)
    for phase in rule.phases:
        lanes = addresses[:, list(phase)]
        words = lanes[:, :, None] // lds_banks.BANK_BYTES + np.arange(dwords)
        words = np.sort(np.where(lanes[:, :, None] >= 0, words, INACTIVE).reshape(len(addresses), -1), axis=1)
        fresh = np.diff(words, axis=1, prepend=INACTIVE) != 0  # a word is served once, to every lane that reads it
        counts = np.zeros((len(addresses), rule.banks), np.int64)
        np.add.at(counts, (np.nonzero(fresh)[0], words[fresh] % rule.banks), 1)
        total += np.maximum(counts.max(axis=1) - 1, 0)
    return total


# -- other layouts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Another layout of a buffer: padding after its rows, or a swizzle.

    In a swizzle, the number of each unit in a row is XORed with the lowest bits of the row's number.
    """

    row: int  # bytes of a row, from the buffer's first byte
    padding: int = 0  # bytes after each row
    bits: int = 0  # lowest bits of the row's number
    unit: int = 4  # bytes that the XOR moves as one

    def move(self, addresses: np.ndarray, base: int) -> np.ndarray:
        """Returns the new places of addresses of a buffer that begins at `base`; INACTIVE stays."""
        rows, within = np.divmod(addresses - base, self.row)
        within ^= (rows & (1 << self.bits) - 1) * self.unit
        return np.where(addresses >= 0, base + rows * (self.row + self.padding) + within, INACTIVE)

    def __str__(self) -> str:
        if self.padding:
            return f"{self.padding} bytes of padding after every {self.row}"
        mask = (1 << self.bits) - 1
        return f"byte ^= (byte / {self.row} & {mask}) * {self.unit}"

    def document(self) -> dict[str, int]:
        """Returns a JSON document."""
        return {"row": self.row, "padding": self.padding, "bits": self.bits, "unit": self.unit}


@dataclass(frozen=True)
class LdsBuffer:
    """Accesses whose bytes overlap, directly or through others: they share a layout."""

    first: int  # first byte
    end: int
    accesses: tuple[LdsAccess, ...]

    @property
    def unit(self) -> int:
        """Bytes that a layout moves as one, a power of two: no access may be split."""
        widest = max(access.nbytes for access in self.accesses)
        return max(4, 16 if widest == 12 else widest)

    @property
    def rows(self) -> list[int]:
        """Bytes of a row to try, ascending: powers of two, and distances of neighbouring lanes."""
        steps: Counter[int] = Counter()
        for access in self.accesses:
            near = access.addresses[:, :-1], access.addresses[:, 1:]
            steps.update(np.abs(near[1] - near[0])[(near[0] >= 0) & (near[1] >= 0)].tolist())
        fitting = [step for step, _ in steps.most_common() if ROWS[0] <= step <= ROWS[-1] and step % self.unit == 0]
        return sorted({*ROWS, *fitting[:MOST_STRIDES]})

    def lost_clocks(self, target: str, layout: Layout | None = None) -> int:
        """Clocks that all visits lose, in the present layout or another."""
        return sum(
            int(lost_clocks(target, a.kind, a.nbytes, layout.move(a.addresses, self.first) if layout else a.addresses).sum())
            for a in self.accesses
        )

    def clears(self, target: str, layout: Layout) -> bool:
        """True if no visit loses a clock in a layout."""
        return not any(lost_clocks(target, a.kind, a.nbytes, layout.move(a.addresses, self.first)).any() for a in self.accesses)

    def layouts(self) -> Iterator[Layout]:
        """Yields the layouts to try: paddings by the bytes that they add, then swizzles by their bits."""
        paddings = [Layout(row, padding) for row in self.rows for padding in range(self.unit, MOST_PADDING + 1, self.unit)]
        yield from sorted(paddings, key=lambda layout: (self.added_bytes(layout), layout.padding))
        for bits in range(1, MOST_BITS + 1):
            yield from (Layout(row, 0, bits, self.unit) for row in ROWS if self.unit << bits <= row)

    def added_bytes(self, layout: Layout) -> int:
        """Bytes of LDS that a layout adds."""
        return (self.end - self.first - 1) // layout.row * layout.padding

    def suggest(self, target: str) -> list[Layout]:
        """Suggests layouts that clear every access: the padding that adds the fewest bytes and the swizzle of the fewest bits.

        It returns neither, either or both; nothing if no clock is lost.
        """
        if not self.lost_clocks(target):
            return []
        found: dict[bool, Layout] = {}
        for layout in self.layouts():
            swizzles = layout.bits > 0
            if swizzles not in found and self.clears(target, layout):
                found[swizzles] = layout
        return list(found.values())


def buffers(found: Sequence[LdsAccess]) -> list[LdsBuffer]:
    """Groups the accesses by the memory that they share, by address."""
    spans = sorted(((*access.span, access) for access in found if access.span[1]), key=lambda entry: entry[:2])
    groups: list[tuple[int, int, list[LdsAccess]]] = []
    for first, end, access in spans:
        if groups and first < groups[-1][1]:
            low, high, members = groups[-1]
            groups[-1] = low, max(high, end), [*members, access]
        else:
            groups.append((first, end, [access]))
    return [LdsBuffer(first, end, tuple(members)) for first, end, members in groups]


def lds_document(target: str, found: Sequence[LdsAccess], rows: Mapping[int, int]) -> dict[str, Any]:
    """Returns the page's part on LDS. rows: of the instructions, by offset; rules: banks and phases by kind and bytes."""
    grouped = buffers(found)
    of = {id(access): number for number, buffer in enumerate(grouped) for access in buffer.accesses}
    rules = {(access.kind, max(4, access.nbytes)) for access in found}
    return {
        "rules": {f"{kind}{nbytes}": _rule(target, kind, nbytes) for kind, nbytes in sorted(rules)},
        "accesses": [
            {"row": rows[access.offset], "kind": access.kind, "bytes": access.nbytes, "part": access.part, "buffer": of[id(access)],
             "visits": access.addresses.tolist(),
             "lost": lost_clocks(target, access.kind, access.nbytes, access.addresses).tolist()}
            for access in found if id(access) in of
        ],
        "buffers": [
            {"first": buffer.first, "end": buffer.end, "unit": buffer.unit, "rows": buffer.rows,
             "suggest": [{**s.document(), "text": str(s), "added": buffer.added_bytes(s)} for s in buffer.suggest(target)]}
            for buffer in grouped
        ],
    }  # fmt: skip


def _rule(target: str, kind: str, nbytes: int) -> dict[str, Any]:
    rule = lds_banks.phases(target, kind, nbytes)
    return {"banks": rule.banks, "phases": [list(phase) for phase in rule.phases], "source": rule.source}
