"""Findings: an error, its place, the other instruction involved, and the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from simgpu.hardware.code_object.frames import library_words
from simgpu.hardware.errors import SimError

Severity = Literal["error", "note"]
# Certainty of a finding (docs/reference/lint.md). "every path" includes pairs in one block. "every round": in every further round
# of a loop. "addresses": on every path, if two accesses touch the same LDS. "": paths were not analysed.
Certainty = Literal["", "every path", "every round", "some path", "addresses"]
CERTAIN = ("every path", "every round")
CHECK_FAILED = "internal-error"  # a kind, see `Finding.is_internal`


@dataclass(frozen=True)
class FindingPlace:
    """Another pair of places with the same cause as a finding."""

    pc: int
    at: str
    text: str
    source: str
    other_pc: int | None
    other_at: str
    other_text: str
    other_source: str
    count: int  # number of occurrences


@dataclass(frozen=True)
class Finding:
    """An error or note on a kernel, from checked mode or `simgpu lint`.

    workgroup: the lowest one with this finding. wave, lanes: those of the first occurrence there.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x", check=True)
    >>> x, y = gpu.empty((16, 16)), gpu.empty((16, 16))   # nobody writes x
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(16, 16, 16, target="mi300x")), gpu, x, x, y)
    >>> print(run.findings[0])
    error: uninitialized: the product takes A from v..., which holds data loaded from memory that nothing wrote
      at gemm_f32_nn_32x32x16+0x... `v_mfma_f32_16x16x4_f32 ...` (kernel.s:..., gemm/emitter.py:...)
    ...
    """

    kind: str  # listed in docs/reference/findings.md: "missing-wait", "race", ...
    message: str
    pc: int  # virtual address of the instruction in the code object
    text: str  # the instruction there
    wave: int = 0  # number in its workgroup
    lanes: tuple[int, ...] = ()
    count: int = 1  # number of occurrences; 0 if nothing ran (`simgpu lint`)
    severity: Severity = "error"
    workgroup: tuple[int, int, int] = (0, 0, 0)
    source: str = ""  # the user's file:line, or ""
    frames: tuple[str, ...] = ()  # that line and the lines inlined there, innermost first: "hip.h:61 in __syncthreads"
    kernel: str = ""
    other_pc: int | None = None  # the earlier instruction, or the other side of a race; None if there is none
    other_text: str = ""
    other_source: str = ""
    other_frames: tuple[str, ...] = ()
    place: str = ""  # the register, such as "v3", or the address
    needed: int = -1  # wait states or a counter's value; -1 for neither
    found: int = -1  # the actual number of these
    emitter: str = ""  # the Python line of `asm` that emitted the instruction, or ""
    other_emitter: str = ""
    pairs: int = 1  # places, or pairs of them, with the same cause (`group`)
    places: tuple[FindingPlace, ...] = ()  # the next pairs, most frequent first
    at: str = ""  # `pc` as users read and type it, "gemm+0x98" (`CodeObject.address_name`); "" if unknown
    other_at: str = ""
    when: str = ""  # moment of the first occurrence, as `goto` takes it: "wg(7,0,0) w0 #52311"; "" if unknown
    rule: str = ""  # subkind: the hazard rule, or how a register with an outstanding operation is used
    certainty: Certainty = ""  # of `simgpu lint`
    clocks_between: int = -1  # clocks between the two instructions in the time model; -1 if unknown
    clocks_taken: int = -1  # clocks that the earlier one's operation takes

    @property
    def certain(self) -> bool:
        """True if it occurs on every path, or in every further iteration of a loop."""
        return self.certainty in CERTAIN

    @property
    def is_internal(self) -> bool:
        """True if it is a check's own error, which says nothing about the kernel."""
        return self.kind == CHECK_FAILED

    def __str__(self) -> str:
        """Returns text for people, in several lines."""
        lines = [f"{self.severity}: {self.kind}: {self.message}"]
        library = library_words(self.source, self.frames)
        lines.append(f"  at {self._spot(self.at, self.pc, self.text, self.source, library, self.emitter)}")
        if self.other_pc is not None:
            library = library_words(self.other_source, self.other_frames)
            spot = self._spot(self.other_at, self.other_pc, self.other_text, self.other_source, library, self.other_emitter)
            lines.append(f"  earlier {spot}")
        if self.clocks_taken >= 0:
            between = f"the time model puts {self.clocks_between} clocks between the two"
            lines.append(f"  {between}; the operation takes {self.clocks_taken}")
        lines.append(f"  {f'{self.kernel}: ' if self.kernel and not self.at else ''}{self._waves_and_count()}")
        if self.when:
            lines.append(f"  first at {self.when}")
        if self.places:
            shown = "the next" if len(self.places) < self.pairs - 1 else "the others"
            places = "places" if self.other_pc is None else "pairs of places"
            lines.append(f"  one cause shows at {self.pairs} {places}, {shown}:")
            for place in self.places:
                at = self._spot(place.at, place.pc, place.text, place.source)
                if place.other_pc is not None:
                    at += f", earlier {self._spot(place.other_at, place.other_pc, place.other_text, place.other_source)}"
                lines.append(f"    {at}" + (f"; seen {times(place.count)}" if place.count else ""))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns HTML for Jupyter."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    @staticmethod
    def _spot(at: str, pc: int, shown: str, *lines: str) -> str:
        where = ", ".join(line for line in lines if line)
        return f"{at or f'{pc:#x}'} `{shown}`" + (f" ({where})" if where else "")

    def _waves_and_count(self) -> str:
        """Describes the wave and the number of occurrences, or the path if nothing ran."""
        if not self.count:
            return PATHS[self.certainty]
        who = f"workgroup {self.workgroup}, wave {self.wave}"
        if self.lanes:
            who += f", lanes {lane_ranges(self.lanes)}"
        return f"{who}; seen {times(self.count)}"

    def document(self) -> dict[str, Any]:
        """Returns a dict for JSON."""
        return asdict(self)


def errors_among(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings that are errors, not notes."""
    return [finding for finding in findings if finding.severity == "error"]


class KernelFinding(SimError):
    """Raised for findings of checked mode.

    findings: all of the launch; the message shows the first
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        rest = len(findings) - 1
        super().__init__(f"{findings[0]}" + (f"\n(and {rest} more: see .findings)" if rest else ""))
        self.findings = tuple(findings)


PATHS: dict[Certainty, str] = {
    "": "of the code itself",
    "every path": "certain: on every path",
    "every round": "certain: whenever the loop goes round again",
    "some path": "on some path",
    "addresses": "certain if both touch the same LDS",
}  # fmt: skip


def moment(workgroup: tuple[int, int, int], wave: int, retired: int) -> str:
    """Returns a moment of a run as users read and type it, `wg(7,0,0) w0 #52311`: a wave and the instructions it retired."""
    return f"wg({','.join(map(str, workgroup))}) w{wave} #{retired}"


def times(count: int) -> str:
    """Returns a count in words: once, 2 times."""
    return "once" if count == 1 else f"{count} times"


# Kinds of which one cause, such as a missing barrier, may show at many pairs of places, and the role of each side. Findings that
# share an instruction in the same role have one cause. In a race the roles are equal. In a missing wait they differ: a load that
# uses a register too early is another cause than users that do not wait for this load.
OF_ONE_CAUSE = {
    "race": ("access", "access"), "stale-read": ("access", "access"), "missing-wait": ("user", "operation"),
    "hazard": ("later", "earlier"), "barrier": ("barrier", "barrier"),
}  # fmt: skip
COPIES = ("out-of-bounds", "use-after-free", "uninitialized")  # other kinds whose copies, as in an unrolled loop, have one cause
SHOWN = 2  # places of one cause after the first


def group(findings: Iterable[Finding]) -> list[Finding]:
    """Merges findings of a kind whose pairs of places share an instruction in one role, or are copies of one pair or instruction.

    Copies, as in an unrolled loop, have the same mnemonics and source lines; if a line is unknown, the same instruction texts. The
    most frequent finding of a group remains, with the next two places and the number of places. Groups are in the order of their
    first findings.
    """
    found = _with_origins(findings)
    leader = list(range(len(found)))

    def root(at: int) -> int:
        while leader[at] != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    by_link: dict[tuple[object, ...], int] = {}
    for at, finding in enumerate(found):
        for link in _links(finding):
            first = by_link.setdefault((finding.kind, finding.severity, *link), at)
            one, other = sorted((root(first), root(at)))
            leader[other] = one
    groups: dict[int, list[Finding]] = {}
    for at, finding in enumerate(found):
        groups.setdefault(root(at), []).append(finding)
    return [of_one_cause(sorted(group, key=lambda f: -f.count)) for group in groups.values()]


def _with_origins(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings. Uninitialized data of unknown origin counts with data at the same place whose load is known."""
    found = list(findings)
    known: dict[tuple[object, ...], int] = {}
    for at, finding in enumerate(found):
        if finding.kind == "uninitialized" and finding.other_pc is not None:
            known.setdefault((finding.pc, finding.severity), at)
    kept = {}
    for at, finding in enumerate(found):
        unknown = finding.kind == "uninitialized" and finding.other_pc is None
        kept[at] = known.get((finding.pc, finding.severity), at) if unknown else at
    counts = Counter[int]()
    for at, to in kept.items():
        counts[to] += found[at].count
    return [replace(finding, count=counts[at]) for at, finding in enumerate(found) if kept[at] == at]


def _links(finding: Finding) -> list[tuple[object, ...]]:
    """Returns keys; findings of one kind and severity that share one have one cause."""
    if finding.kind in OF_ONE_CAUSE and finding.other_pc is not None:
        roles = zip(OF_ONE_CAUSE[finding.kind], (finding.pc, finding.other_pc), strict=True)
        return [*roles, _pair_of(finding)]
    if finding.kind not in COPIES:
        return []
    return [_copy_of(finding.text, finding.source) if finding.other_pc is None else _pair_of(finding)]


def _copy_of(text: str, source: str) -> tuple[str, str]:
    """Returns what all copies of an instruction share."""
    return (text.split()[0] if source else text), source


def _pair_of(finding: Finding) -> tuple[str, ...]:
    """Returns a key that is the same for all copies of a finding's pair of instructions; see `group`."""
    if finding.source and finding.other_source:
        return *_copy_of(finding.text, finding.source), *_copy_of(finding.other_text, finding.other_source)
    return finding.text, finding.other_text


def of_one_cause(group: Sequence[Finding]) -> Finding:
    """Returns the first finding of a group with one cause, with the places of the next ones and the size of the group."""
    first, *others = group
    if not others:
        return first
    places = tuple(
        FindingPlace(f.pc, f.at, f.text, f.source, f.other_pc, f.other_at, f.other_text, f.other_source, f.count)
        for f in others[:SHOWN]
    )
    return replace(first, pairs=len(group), places=places)


def wait_message(place: str, what: str, earlier: str, waits: str) -> str:
    """Returns the message for a missing s_waitcnt.

    what: "read", "overwritten", or "ended" (the wave ends before a load has written its LDS)
    """
    wanted = f"s_waitcnt {waits} is needed before it"
    if what == "ended":
        return f"the wave ends while `{earlier}` may still write its LDS: {wanted}"
    return f"{place} is {what} before `{earlier}` is sure to have written it: {wanted}"


def hazard_message(rule: str, place: str, earlier: str, needed: int, found: int) -> str:
    """Returns the message for a hazard: actual and required wait states, the rule's source, and the s_nop to insert.

    rule: name of a `HazardRule`
    """
    from simgpu.hardware.timing_rules.hazards import source_of  # plain mode starts faster without it

    about = f" ({place})" if place else ""
    lacking = needed - found
    nops = " and ".join(f"`s_nop {min(8, lacking - at) - 1}`" for at in range(0, lacking, 8))
    states = f"{found} wait state{'' if found == 1 else 's'} after `{earlier}`"
    return f"{rule}{about}: {states}, {needed} required ({source_of(rule)}): insert {nops}"


def lane_ranges(lanes: tuple[int, ...]) -> str:
    """Returns lane numbers as 0-3,7."""
    ranges: list[list[int]] = []
    for lane in lanes:
        if ranges and ranges[-1][1] == lane - 1:
            ranges[-1][1] = lane
        else:
            ranges.append([lane, lane])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def lanes_of(mask: int) -> tuple[int, ...]:
    """Returns the lanes of a 64-bit mask."""
    return tuple(lane for lane in range(64) if mask >> lane & 1)
