"""Claims of a proof about all launches of a kernel, its assumptions, and its verdict for people and programs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.file_kernel import parse_extents
from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu.proof.safety.judge import SafetyVerdict
    from simgpu.proof.safety.launches import Assumptions

# Options, the kind of finding that they exclude, and what is proved.
PROPERTIES = {"no_out_of_bounds": ("out-of-bounds", "accesses only its buffers"), "no_race": ("race", "has no races")}


def add_safety_options(parser: ArgumentParser) -> None:
    """Adds the options for one kernel in all launches."""
    group = parser.add_argument_group("one kernel in all launches, its arguments and its grid as symbols")
    text = "prove that it accesses only its buffers, its LDS and its private memory"
    group.add_argument("--no-out-of-bounds", action="store_true", help=text)
    group.add_argument("--no-race", action="store_true", help="prove that no two waves race")
    text = "a buffer's size in bytes, of arguments and grid_x, block_x, ...: x=4*n, 0=m*lda"
    group.add_argument("--buffer", action="append", default=[], metavar="NAME=BYTES", help=text)
    text = "what holds of arguments, such as n<=4096 or grid_x*block_x==n"
    group.add_argument("--assume", action="append", default=[], metavar="CONDITION", help=text)
    text = "work-items of a workgroup (default: the kernel's requirement, or any)"
    group.add_argument("--block", metavar="X[,Y[,Z]]", help=text)
    group.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="LDS beyond the kernel's own")
    text = "a buffer has fewer bytes (default: 2**31, below which 32-bit indices of dwords do not wrap)"
    group.add_argument("--largest-buffer", default="2**31", metavar="BYTES", help=text)


def properties_of(options: Namespace) -> list[str]:
    """Returns the kinds of findings to exclude. UsageError for options that go only with them."""
    found = [kind for name, (kind, _) in PROPERTIES.items() if getattr(options, name)]
    lonely = [name for name in ("buffer", "assume", "block", "dynamic_lds") if getattr(options, name)]
    if lonely and not found:
        raise UsageError(f"--{lonely[0].replace('_', '-')} goes with --no-out-of-bounds or --no-race")
    return found


def assumptions_of(options: Namespace) -> Assumptions:
    """Returns what the options state. UsageError for text that states nothing."""
    from simgpu.proof.safety.launches import Assumptions
    from simgpu.proof.safety.sizes import BadAssumption, SizeExpression

    buffers = {}
    try:
        for text in options.buffer:
            name, sign, size = text.partition("=")
            if not sign or not name.strip() or not size.strip():
                raise UsageError(f"--buffer {text}: give an argument and its bytes, as x=4*n")
            if name.strip() in buffers:
                raise UsageError(f"--buffer {text}: the size of {name.strip()} is stated twice")
            buffers[name.strip()] = SizeExpression.parse(size)
            if buffers[name.strip()].is_condition:
                raise UsageError(f"--buffer {text}: the size is a comparison")
        conditions = [SizeExpression.parse(text) for text in options.assume]
        largest = SizeExpression.parse(options.largest_buffer)
        most = 0 if largest.is_condition or any(largest.names()) else largest.value({})
    except BadAssumption as error:
        raise UsageError(str(error)) from None
    for text, made in zip(options.assume, conditions, strict=True):
        if not made.is_condition:
            raise UsageError(f"--assume {text}: give a comparison, as n<=4096")
    if not 0 < most <= 1 << 48:
        raise UsageError(f"--largest-buffer {options.largest_buffer}: give a number of bytes up to 2**48")
    if not 0 <= options.dynamic_lds < 1 << 20:
        raise UsageError(f"--dynamic-lds {options.dynamic_lds}: give a number of bytes")
    block = parse_extents("--block", options.block) if options.block else ()
    return Assumptions(buffers, conditions, block, options.dynamic_lds, most)


def safety_lines(what: str, properties: Sequence[str], verdict: SafetyVerdict, command: str) -> list[str]:
    """Returns the verdict for people."""
    claim = " and ".join(text for kind, text in PROPERTIES.values() if kind in properties)
    shown = verdict.counterexample
    if verdict.kind == "proved":
        count = f"{verdict.accesses} instruction{'s' if verdict.accesses != 1 else ''}"
        return [f"proved: {what} {claim}: {count} that access memory, in all launches", "assumed:"] + [
            f"  {text}" for text in verdict.assumed
        ]
    if shown is None:
        first, *others = verdict.reason.splitlines()
        return [f"unknown: {what}: {first}", *(f"  {line}" for line in others)]
    extents = f"grid {','.join(map(str, shown.grid))}, block {','.join(map(str, shown.block))}"
    return [
        f"counterexample: {what}", f"  {verdict.reason}", f"  simulated: {extents}: {shown.finding.message}",
        f"  {command or '--save NAME writes this launch: buffers and the code object'}",
    ]  # fmt: skip


def safety_document(verdict: SafetyVerdict, arguments: Sequence[str], command: str) -> dict[str, Any]:
    """Returns the verdict as a JSON document."""
    shown = verdict.counterexample
    found = None if shown is None else {
        "arguments": list(arguments), "grid": list(shown.grid), "block": list(shown.block), "dynamic_lds": shown.dynamic_lds,
        "finding": {"kind": shown.finding.kind, "message": shown.finding.message, "pc": shown.finding.pc}, "command": command,
    }  # fmt: skip
    return {
        "verdict": verdict.kind, "reason": verdict.reason, "seconds": verdict.seconds, "accesses": verdict.accesses,
        "claims": verdict.proved, "assumed": list(verdict.assumed), "counterexample": found,
    }  # fmt: skip
