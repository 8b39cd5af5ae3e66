"""Output of `simgpu profile` on a kernel, within 80 columns: what to change, where waves stall, and another run beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simgpu.advice.costs import LineCost
from simgpu.advice.counters import counters
from simgpu.advice.profile import Advice, Profile
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.tools.tables.time_tables import WIDTH, wrap

Source = Callable[[str], str]  # returns the text of a `file:line`, "" if unknown
INDENT = 21  # of an advice's text
LONGEST = 20  # characters of a place in the table of lines
# What waves wait for, in words; names of `simgpu.timing.native.state.Stall`.
REASONS = {
    "NO_INSTRUCTION_AVAILABLE": "code", "WAITCNT": "loads", "BARRIER_WAIT": "barrier", "ARBITER_NOT_WIN": "busy unit",
    "ARBITER_WIN_EX_STALL": "busy unit", "OTHER_WAIT": "nop", "SLEEP_WAIT": "sleep",
}  # fmt: skip
BUSY = {"matrix": "the matrix units", "VALU": "the vector units", "LDS": "LDS", "vector cache": "the vector cache", "L2": "L2",
        "HBM": "memory"}  # fmt: skip


def profile_document(name: str, one: Profile, source: Source) -> dict[str, Any]:
    """Returns a JSON document, which `comparison` reads."""
    timed = one.prediction
    return {
        "kernel": name, "cycles": round(timed.cycles), "seconds": timed.seconds, "seconds_low": timed.low,
        "seconds_high": timed.high, "clock_mhz": timed.clock.mhz, "shares_of_peak": timed.shares, "limit": timed.limit,
        "bound": None if one.bound is None else {"unit": one.bound[0], "seconds": one.bound[1]},
        "notes": list(timed.notes),
        "advice": [advice_document(each, source) for each in one.advice],
        "lines": [
            {"place": line.place, "source": source(line.place), "stall": line.stall, "latency": line.latency, "hits": line.hits,
             "reasons": line.reasons, "lds_lost": round(sum(cost.lost for cost in line.costs)), **_accesses(line)}
            for line in one.lines
        ],
        "counters": counters(timed, list(one.lines)),
    }  # fmt: skip


def advice_document(one: Advice, source: Source) -> dict[str, Any]:
    """Returns a cause's JSON document."""
    cause = one.cause
    return {
        "kind": cause.kind, "place": cause.place, "source": source(cause.place), "why": cause.why, "change": cause.change,
        "seconds": one.seconds, "gain": one.gain, "bound": cause.bound,
    }  # fmt: skip


def profile_text(name: str, one: Profile, source: Source, most: int) -> list[str]:
    """Returns lines of text: the time, what to change, and the `most` source lines that stall most."""
    timed = one.prediction
    micro = [f"{1e6 * value:,.4g}" for value in (timed.seconds, timed.low, timed.high)]
    said = [
        "", f"{name} on {timed.sampled.chip.name}",
        f"  {micro[0]} us at {timed.clock.mhz:,.0f} MHz; {micro[1]} to {micro[2]} us",
        *wrap(f"limited by: {timed.limit}"),
    ]  # fmt: skip
    for note in timed.notes:
        said += wrap(f"note: {note}")
    if timed.active < timed.sampled.chip.num_cus:
        said += wrap(f"note: {timed.active} of {timed.sampled.chip.num_cus} CUs work: there are no more workgroups")
    return [*said, *_advice_text(one, source, most), *_lines_text(one, source, most)]


def _advice_text(one: Profile, source: Source, most: int) -> list[str]:
    head = "What to change, the first thing first"
    if one.bound is not None:
        unit, seconds = one.bound
        share = one.prediction.shares[unit]
        said = wrap(f"{BUSY[unit]}: busy {share:.0%} of the time; at their peak the launch takes {1e6 * seconds:,.4g} us")
        head = "What is above that, the first thing first"
    else:
        said = []
    if not one.advice:
        return [*said, "", "  No change was found that gains 1 %."]
    made = [*said, "", f"  {head}", "     gain  without it"]
    for each in one.advice[:most]:
        cause = each.cause
        sign = "<" if cause.bound else " "
        place = cause.place if not cause.place.startswith("0x") else cause.place.partition(" ")[0]
        figures = f"  {sign}{each.gain:>6.1%} {1e6 * each.seconds:>8,.4g} us"
        made.append(f"{figures}  {cause.kind}{f' at {place}' if place else ''}"[:WIDTH])
        text = source(cause.place) or cause.place.partition(" ")[2]
        made += [" " * INDENT + text[: WIDTH - INDENT]] if text else []
        made += wrap(cause.why, INDENT) + wrap(f"-> {cause.change}", INDENT)
    if any(each.cause.bound for each in one.advice[:most]):
        made += wrap("< is a bound: the time if this cost nothing; a change gains less.")
    return made


_HEAD = f"  {'stall':>6}  {'on':<9} {'LDS clocks':>10} {'cache lines':>11}  line"


def _lines_text(one: Profile, source: Source, most: int) -> list[str]:
    whole = max(1, sum(line.latency for line in one.lines))
    worst = [line for line in one.lines[: max(0, most)] if line.stall]
    if not worst:
        return []
    made = ["", "  Where waves stall, of their time on a CU (of each access: needed)", _HEAD]
    for line in worst:
        found, reason = _accesses(line), REASONS.get(next(iter(line.reasons), ""), "")
        lds, lines = (_ratio(found.get(name)) for name in ("lds_clocks", "cache_lines"))
        place, _, code = line.place.partition(" ") if not line.known else (line.place, "", source(line.place))
        short = place if len(place) <= LONGEST else f"...{place[3 - LONGEST:]}"
        made.append(f"  {line.stall / whole:>6.1%}  {reason:<9} {lds:>10} {lines:>11}  {short} {code}"[:WIDTH].rstrip())
    return made


def _ratio(pair: Sequence[float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.3g}: {pair[1]:.3g}"


def _accesses(line: LineCost) -> dict[str, list[float]]:
    """Returns means of the line's accesses, with the least possible: clocks of LDS, 64-byte lines of memory."""
    found = {}
    for name, kind, fields in (("lds_clocks", Kind.LDS, ("taken", "least")), ("cache_lines", Kind.VMEM, ("touched", "needed"))):
        costs = [cost for cost in line.costs if cost.kind is kind and cost.accesses]
        hits = sum(cost.line.hits for cost in costs)
        if hits:
            found[name] = [round(sum(getattr(c, field) * c.line.hits for c in costs) / hits, 3) for field in fields]
    return found


# -- another run beside it -------------------------------------------------------------------------


def comparison(mine: Mapping[str, Any], other: Mapping[str, Any], path: str, most: int) -> list[str]:
    """Returns lines of text: the time then and now, and the source lines whose stalls differ most.

    mine, other: documents of `profile_document`. Lines are the same if their text is: an edit moves the others.
    """
    before, now = other["seconds"], mine["seconds"]
    said = [f"{path}: {1e6 * before:,.4g} us; now {1e6 * now:,.4g} us, {_percent(now / before - 1)}"]
    if other["advice"]:
        first = other["advice"][0]
        said.append(f"its first advice was {first['kind']}{' at ' if first['place'] else ''}{first['place']}: "
                    f"{1e6 * first['seconds']:,.4g} us{' at best' if first['bound'] else ''}")  # fmt: skip
    then, after = _by_text(other["lines"]), _by_text(mine["lines"])
    rows = [(then.get(key, 0), after.get(key, 0), key[0]) for key in dict.fromkeys((*then, *after))]
    rows.sort(key=lambda row: -abs(row[0] - row[1]))
    made = ["", *(line for text in said for line in wrap(text))]
    rows = [row for row in rows if row[0] != row[1]][: max(0, most)]
    if rows:
        made += ["  Stalls of a CU's waves, clocks", f"  {'then':>12} {'now':>12}  line"]
    return made + [f"  {old:>12,} {new:>12,}  {text}"[:WIDTH] for old, new, text in rows]


def _percent(change: float) -> str:
    return f"{abs(change):.1%} {'more' if change > 0 else 'less'}" if abs(change) >= 0.0005 else "the same"


def _by_text(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    """Returns stalls by a line's text and its number among equal ones; by its place if its text is unknown."""
    found: dict[tuple[str, int], int] = {}
    for line in sorted(lines, key=lambda line: (len(line["place"]), line["place"])):
        text = line["source"] or line["place"]
        number = next(at for at in range(len(lines) + 1) if (text, at) not in found)
        found[text, number] = line["stall"]
    return found
