"""Causes in computation, barriers, occupancy and dispatch, as in `causes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simgpu.advice.causes import LOOP, Cause, Scene
from simgpu.advice.costs import Cost, LineCost
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.timing_rules.issue import VECTOR_UNITS, Kind, Unit
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.without import Without

# Instructions by which compilers divide: of f32 and f64, and of integers [LLVM, AMDGPULegalizerInfo: legalizeFDIV,
# legalizeUnsignedDIV_REM]. The reciprocal of an integer divisor may be computed before a loop; in the loop are a high product and
# a comparison that corrects the quotient.
DIVISION = ("v_div_scale", "v_div_fmas", "v_div_fixup", "v_rcp_iflag")
QUOTIENT = ("v_mul_hi_u32", "v_cmp_", "v_cndmask")
MOST_RESIDENT_LDS = 1024  # bytes by which LDS may be cut at least


def barriers(scene: Scene) -> Iterator[Cause]:
    """Yields lines with barriers, together with the waits for counters that belong to them."""
    for line in scene.lines:
        held = [cost for cost in line.costs if cost.kind is Kind.BARRIER]
        if not held:
            continue
        waits = [cost for cost in line.costs if cost.kind is Kind.WAIT]
        if not scene.matters(sum(cost.line.stall for cost in (*held, *waits))):
            continue
        each = sum(cost.line.stall for cost in held) / sum(cost.line.hits for cost in held)
        unneeded = all(cost.line.offset in scene.unneeded_barriers() for cost in held)
        why = f"waves wait {each:,.0f} clocks for each other"
        gone = held if not unneeded else [*held, *waits]
        yield Cause(
            "barrier", line.place, f"{why}; in this run the barrier orders nothing" if unneeded else why,
            "remove the barrier" if unneeded else "give waves equal work between barriers, or have fewer barriers",
            Without(removed=frozenset(cost.number for cost in gone)), bound=not unneeded,
        )


def computation(scene: Scene) -> Iterator[Cause]:
    """Yields lines whose vector instructions divide, convert to double, or occupy the unit most."""
    whole = max(1, sum(cost.busy for line in scene.lines for cost in line.costs if cost.unit in VECTOR_UNITS))
    for line in scene.lines:
        vector = [cost for cost in line.costs if cost.unit in VECTOR_UNITS and cost.kind is Kind.PLAIN]
        busy = sum(cost.busy for cost in vector)
        if busy < 0.05 * whole:
            continue
        yield _computation(line, vector, busy / whole)


def _computation(line: LineCost, vector: list[Cost], part: float) -> Cause:
    times = max(cost.line.hits for cost in vector)
    each = sum(cost.line.hits for cost in vector) / times
    if _divides([cost.inst.mnemonic for cost in vector]):
        scalar = [cost for cost in line.costs if cost.unit is Unit.SCALAR and cost.kind is Kind.PLAIN]
        return Cause(
            "division", line.place, f"divides: {each:.3g} vector instructions each time",
            "multiply by a reciprocal, or shift by a power of two", _remove([*vector, *scalar]),
        )
    doubled = [cost for cost in vector if "cvt_f64_f32" in cost.inst.mnemonic or "cvt_f32_f64" in cost.inst.mnemonic]
    if doubled:
        return Cause(
            "double", line.place, "converts float to double and back", "write constants as 1.0f, call sinf instead of sin",
            _remove(doubled),
        )
    slow = [cost for cost in vector if Flag.TRANS in cost.inst.spec.flags]
    if slow:
        names = ", ".join(dict.fromkeys(cost.inst.mnemonic.removesuffix("_e32") for cost in slow))
        return Cause("transcendental", line.place, f"computes {names}", "compute it less often", _remove(slow), bound=True)
    return Cause(
        "computation", line.place, f"{100 * part:.0f} % of the vector unit's work", "compute less here", _remove(vector),
        bound=True,
    )


def _divides(mnemonics: Sequence[str]) -> bool:
    quotient = all(any(name.startswith(part) for name in mnemonics) for part in QUOTIENT)
    return quotient or any(name.startswith(DIVISION) for name in mnemonics)


def idling(scene: Scene) -> Iterator[Cause]:
    """Yields lines that wait by themselves: s_sleep, s_nop; and waiting for instructions."""
    for line in scene.lines:
        held = [c for c in line.costs if c.kind is Kind.SLEEP or c.inst.mnemonic == "s_nop"]
        if held and scene.matters(sum(cost.line.latency for cost in held)):
            yield Cause("idle", line.place, "executes s_nop or s_sleep", "do useful work instead", _remove(held))
    if scene.matters(sum(cost.line.idle for line in scene.lines for cost in line.costs)):
        yield Cause(
            "instruction-fetch", "", "waves wait for instructions that are not in the cache", "unroll less",
            mechanisms=Mechanisms(code_fetch=False), bound=True,
        )


def occupancy(scene: Scene) -> Iterator[Cause]:
    """Yields the limit of the workgroups on a CU, if one more would be there."""
    one = scene.prediction
    chip, used, now = one.sampled.chip, one.sampled.used, one.sampled.used.resident(one.sampled.chip)
    more = (now + 1) * used.waves
    if one.per_cu <= now or more > chip.max_waves_per_simd * chip.simds_per_cu:
        return
    said, cut = [], []
    fits = chip.lds_bytes // (now + 1) // chip.lds_granule * chip.lds_granule
    if used.lds > fits:
        said.append(f"{used.lds:,} bytes of LDS a workgroup")
        cut.append(f"at most {fits:,} bytes of LDS")
    a_simd = -(-more // chip.simds_per_cu)
    if chip.waves_from_vgprs(used.vgprs, used.agprs) < a_simd:
        said.append(f"{used.vgprs + used.agprs} vector registers a lane")
        cut.append(f"at most {chip.vgpr_budget(a_simd)[2]} registers")
    if said and (fits > MOST_RESIDENT_LDS or not used.lds > fits):
        why = f"{' and '.join(said)}: {now} workgroup{'s' * (now > 1)} ({now * used.waves} waves) on a CU"
        yield Cause("occupancy", "", why, f"{' and '.join(cut)}: {now + 1} would fit", Without(groups=1))


def around_the_loop(scene: Scene) -> Iterator[Cause]:
    """Yields what a kernel with matrix instructions executes before and after their loop: its matrix units are idle then."""
    costs = sorted((cost for line in scene.lines for cost in line.costs), key=lambda cost: cost.number)
    loop = [cost.number for cost in costs if cost.unit is Unit.MATRIX and cost.line.hits > LOOP * scene.waves]
    if not loop:
        return
    outside = [cost for cost in costs if cost.line.hits <= LOOP * scene.waves and cost.kind is not Kind.END]
    parts = {
        "prologue": ([cost for cost in outside if cost.number < loop[0]], "before", "begin loading sooner; more K a workgroup"),
        "epilogue": ([cost for cost in outside if cost.number > loop[-1]], "after", "store while another workgroup computes"),
    }
    for kind, (found, when, change) in parts.items():
        clocks = sum(cost.line.latency for cost in found)
        if scene.matters(clocks):
            why = f"{clocks / scene.waves:,.0f} clocks of each wave {when} the loop of matrix instructions"
            yield Cause(kind, "", why, change, _remove(found), bound=True)


def dispatch(scene: Scene) -> Iterator[Cause]:
    """Yields the dispatch of the workgroups, if it decides."""
    if scene.prediction.limit == "dispatch":
        yield Cause(
            "dispatch", "", f"the time in which {scene.prediction.groups:,} workgroups can be started",
            "let each workgroup do more", mechanisms=Mechanisms(dispatch=False), bound=True,
        )


def _remove(costs: list[Cost]) -> Without:
    return Without(removed=frozenset(cost.number for cost in costs))
