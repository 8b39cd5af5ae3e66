"""Tiles, registers and LDS of the kernels of gradients, in closed form.

Both kernels have the same form. A block owns rows of one side: keys for dK and dV, queries for dQ. It loops over the rows of the
other side that it sees, `step` at a time, which pass through LDS. Its four waves own `atoms` atoms of 16 rows each. Letters: s
atoms of a wave, m rows of a step, d and dv widths padded to PADDED. Per lane, in 32-bit registers:

    own rows       s*(d + dv)/8: K and V, or Q and dO, as operands of S and dP; V or dO in AccVGPRs if these have room
    S, dP          s*m/4 each; on targets with a file of accumulators, the same again outside it
    P, dS          s*m/8 each, rounded to the operands' type; P only for dV
    gradients      s*d/4, and s*dv/4 for dV
    staging        a lane's part of a step in flight from memory
    fragments      FRAGMENTS reads of 16 bytes in flight from LDS

LDS holds each stage of a step twice: rows as operands of S and dP, columns as operands of the gradients. dV needs the columns of
dO, dK those of Q, and dQ those of K.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention_backward.cost import gradient_seconds
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.attention_backward.tiles import SIDES, WAVES, GradientPlan, moved_tiles, padded_width
from simgpu.operators.levels import Level, Nest
from simgpu.operators.resources import (
    BUFFER_BYTES,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    rounding_sgprs,
    scalar_ranges,
)

FRAGMENTS = 8  # of 6 and 8, the number with which a step's barrier and LDS reads stall less (modelled)
TEMPORARIES = 8
ALIGNMENT = 4  # registers that ranges which begin at even ones may leave free
ATOMS, STEPS, STAGES = (4, 3, 2, 1), (32, 16), (2, 1)  # what a plan chooses from, the largest first
_MOST_ROWS = 1 << 24  # limit of a row's number in products of 24 bits


def _resources(p: AttentionBackwardProblem, d: HardwareDescriptor, side: str, atoms: int, step: int, stages: int) -> ResourcePlan:
    keys, first, second = side == "keys", padded_width(p.d), padded_width(p.dv)
    tiles, scores = moved_tiles(p, side, step), atoms * step // 4
    chained = "arch" if d.unified_vgprs else "acc"
    statistics = step // 4 if keys else atoms
    gradients = atoms * (first + second * keys) // 4
    spare = "acc" if d.unified_vgprs and gradients + atoms * second // 8 <= d.agpr_per_thread else "arch"
    ranges = [
        ("own 1", "arch", atoms * first // 8), ("own 2", spare, atoms * second // 8),
        ("S", chained, scores), ("dP", chained, scores),
        ("weights", "arch", 0 if d.unified_vgprs else 2 * scores),
        ("P", "arch", scores // 2 if keys else 0), ("dS", "arch", scores // 2),
        ("gradient 1", "acc", atoms * first // 4), ("gradient 2", "acc", atoms * second // 4 if keys else 0),
        ("zero", "acc", 0 if d.unified_vgprs else 4),
        ("L", "arch", statistics), ("D", "arch", statistics),
        ("staging 1", "arch", tiles[0].registers), ("staging 2", "arch", tiles[1].registers),
        ("transposed", "arch", 2), ("fragments", "arch", 4 * FRAGMENTS),
        ("addresses", "arch", 3 + 4 + ALIGNMENT + sum((2 + tile.columns) * tile.loads for tile in tiles)),
        ("edges", "arch", atoms + 1), ("temporaries", "arch", TEMPORARIES),
    ]  # fmt: skip
    registers = tuple(RegisterRange(*row) for row in ranges)
    lds = tuple(LdsArray(tile.name, stages * tile.nbytes) for tile in tiles)
    scalars = scalar_ranges(
        arguments=22, coordinates=8, buffers=16, steps=8, masks=8, selectors=2, rounding=rounding_sgprs(p.dtype, d.arch),
        heads=4, temporaries=8,
    )  # fmt: skip
    return ResourcePlan.of(d, WAVES, registers, lds, scalars)


def plan_gradient(problem: AttentionBackwardProblem, descriptor: HardwareDescriptor, side: str,
                  policy: str = "corrected") -> GradientPlan:  # fmt: skip
    """Returns the closed-form plan of the kernel whose blocks own rows of a side: "keys" for dK and dV, "queries" for dQ.

    It is the plan of least time of `gradient_plans`; or the smallest if none fits. LaunchError for heads of 2 GiB or more.
    """
    one_of("policy", policy, POLICIES)
    one_of("side", side, SIDES)
    p, d = problem, descriptor
    atom = d.atom(p.dtype)
    if (atom.m, atom.n, atom.blocks) != (ATOM, ATOM, 1):
        raise TargetError(f"attention_backward in {p.dtype} needs a matrix instruction of {ATOM}x{ATOM}, not {atom.mnemonic}")
    longest, width = max(p.lq, p.lk) + WAVES * ATOM * ATOMS[0], max(p.d, p.dv)
    if longest * width * 4 >= BUFFER_BYTES or longest >= _MOST_ROWS:
        raise LaunchError(f"attention_backward: a head of {max(p.lq, p.lk)} rows spans too many bytes for a buffer: use fewer rows")
    fitting = gradient_plans(p, d, side, policy)
    smallest = _plan(p, d, side, policy, (ATOMS[-1], STEPS[-1], STAGES[-1]))
    return min(fitting, key=lambda plan: gradient_seconds(plan)["total"], default=smallest)


def gradient_plans(p: AttentionBackwardProblem, d: HardwareDescriptor, side: str, policy: str = "corrected") -> list[GradientPlan]:
    """Returns the plans that fit, most rows first: for each number of rows two stages if they fit, then long steps.

    The first is bound by the limit that the plan before it violates, others by the number of blocks.
    """
    stopped = None
    found: list[GradientPlan] = []
    for atoms in ATOMS:
        for stages, step in product(STAGES, _steps(p, d)):
            plan = _plan(p, d, side, policy, (atoms, step, stages))
            if plan.feasible:
                name = "occupancy" if found else stopped.binding.name if stopped else None
                found.append(replace(plan, constraints=mark_binding(plan.constraints, name)))
                break
            stopped = plan
    return found


def with_nest(plan: GradientPlan, nest: Nest) -> GradientPlan:
    """Returns the plan of other tiles: of what a plan chooses from, the rows of a wave and of a step that are nearest."""
    (*_, rows), (*_, other, waves) = nest[Level.DEVICE], nest[Level.BLOCK]
    changed = waves.tile if waves.tile != ATOM * plan.atoms else rows.tile // WAVES
    atoms = min(ATOMS, key=lambda count: abs(ATOM * count - changed))
    step = min(_steps(plan.problem, plan.descriptor), key=lambda size: abs(size - other.tile))
    return _plan(plan.problem, plan.descriptor, plan.side, plan.policy, (atoms, step, plan.stages))


def _steps(p: AttentionBackwardProblem, d: HardwareDescriptor) -> tuple[int, ...]:
    """Returns the rows of a step that fill a matrix instruction."""
    return tuple(step for step in STEPS if step >= d.atom(p.dtype).k)


def _plan(p: AttentionBackwardProblem, d: HardwareDescriptor, side: str, policy: str, choice: tuple[int, int, int]) -> GradientPlan:
    resources = _resources(p, d, side, *choice)
    plan = GradientPlan(p, d, policy, side, *choice, resources, ())
    rows = limit_rows(d, resources.arch_vgprs, resources.acc_vgprs, resources.sgprs, resources.lds_bytes, WAVES, 1, {})
    return replace(plan, constraints=mark_binding((*rows, occupancy_row(d, plan.blocks))))
