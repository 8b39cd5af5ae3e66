"""Random programs in LLVM IR without undefined behaviour, as text for a GPU and for the host.

A program is a kernel of 256 lanes in two phases with a barrier between them. Both phases are functions of the same text for both
machines; only the address spaces of pointers differ. Phase 0 fills a lane's own part of LDS, phase 1 reads another lane's part. On
the host a caller runs phase 0 lane after lane, then phase 1.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from simgpu.tools.robustness.ir_operands import I32, I64, Region
from simgpu.tools.robustness.ir_statements import ATOM_STRIDE, COMMUTING, Phase
from simgpu.tools.robustness.ir_values import DrawnValue

LANES = 256
IN_STRIDE, OUT_STRIDE, LDS_STRIDE, PRIVATE = 160, 640, 128, 96  # bytes that a lane owns; its base may be odd
SHARED = 16 * len(COMMUTING)  # bytes after the lanes' own in the buffer of atomics
SPACES = {"G": 1, "L": 3, "P": 5, "F": 0}


@dataclass(frozen=True)
class IrProgram:
    """Bodies of the two phases, and how each is inlined."""

    number: int
    bodies: tuple[tuple[str, ...], ...]
    inlining: tuple[str, ...]
    global_isel: bool = True  # whether GlobalISel compiles it right, as far as `ir_faults.py` knows

    def text(self, gpu: bool) -> str:
        """Returns the program's functions, for the GPU with its kernel `p{number}`."""
        parts = []
        for phase, (lines, inlining) in enumerate(zip(self.bodies, self.inlining, strict=True)):
            head = f"define {'hidden ' if gpu else ''}void @p{self.number}_{phase}({PARAMETERS}) {inlining + ' ' if gpu else ''}{{"
            parts.append("\n".join((head, *lines, "}")))
        if gpu:
            parts.append(KERNEL.format(number=self.number, lds=LANES * (LDS_STRIDE + 4)))
        return _spell("\n".join(parts), gpu) + "\n"


# Phases are not internal: LLVM would pass LDS itself for their argument, and GlobalISel traps in a function that is no kernel and
# names LDS.
PARAMETERS = "§G noalias %in, §G %out, §G %atom, i64 %scalar, i32 %lane, §L %lds"
KERNEL = """@lds{number} = internal addrspace(3) global [{lds} x i8] poison, align 16
define amdgpu_kernel void @p{number}(§G noalias %in, §G %out, §G %atom, i64 %scalar) "amdgpu-flat-work-group-size"="256,256" {{
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  call void @p{number}_0(§G %in, §G %out, §G %atom, i64 %scalar, i32 %lane, §L @lds{number})
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  call void @p{number}_1(§G %in, §G %out, §G %atom, i64 %scalar, i32 %lane, §L @lds{number})
  ret void
}}"""


def _spell(text: str, gpu: bool) -> str:
    """Replaces the marks by one machine's pointers and casts."""
    cast = r"addrspacecast \1 to ptr" if gpu else r"getelementptr i8, \1, i32 0"
    text = re.sub(r"§cast[GLP] (.*?) §to", cast, text)
    text = re.sub(r"p§([GLPF])\.", lambda found: f"p{SPACES[found[1]] if gpu else 0}.", text)
    text = re.sub(r"§alloca", ", addrspace(5)" if gpu else "", text)
    return re.sub(r"§([GLPF])", lambda found: f"ptr addrspace({SPACES[found[1]]})" if gpu and found[1] != "F" else "ptr", text)


def program(seed: int, number: int) -> IrProgram:
    """Makes the program of a seed and a number, whatever was made before.

    Those of odd numbers have integers of 33 to 63 bits, and are not for GlobalISel (`sign-from-the-low-half` in `ir_faults.py`).
    """
    odd_widths = number % 2 == 1
    rng = random.Random(f"ir:{seed}:{number}")
    extra = {"in": rng.choice((0, 1, 4)), "out": rng.choice((0, 1, 2, 4, 8)), "lds": rng.choice((0, 1, 2, 4))}
    length, accesses = rng.choice((8, 15, 30, 60)), rng.random() < 0.5
    bodies = tuple(_body(Phase(rng, phase, accesses, odd_widths), extra, length) for phase in range(2))
    return IrProgram(number, bodies, tuple(rng.choice(("alwaysinline", "noinline")) for _ in bodies), not odd_widths)


def _body(phase: Phase, extra: dict[str, int], length: int) -> tuple[str, ...]:
    """Makes prologue, statements, and stores of the pool's values."""
    rng = phase.rng
    phase.label("entry")
    private_align = rng.choice((1, 4, 8, 16))
    phase.effect(f"%private = alloca [{PRIVATE} x i8], align {private_align}§alloca", keep=True)
    phase.effect("%lane64 = zext i32 %lane to i64", keep=True)
    strides = {"in": IN_STRIDE + extra["in"], "out": OUT_STRIDE + extra["out"], "atom": ATOM_STRIDE}
    for name, stride in strides.items():
        phase.effect(f"%{name}_at = mul i64 %lane64, {stride}", keep=True)
        phase.effect(f"%{name}_own = getelementptr i8, §G %{name}, i64 %{name}_at", keep=True)
    phase.effect(f"%shared = getelementptr i8, §G %atom, i64 {LANES * ATOM_STRIDE}", keep=True)
    phase.effect(f"%other = xor i32 %lane, {rng.choice((1, 3, 64, 255)) if phase.phase else 0}", keep=True)
    lds = LDS_STRIDE + extra["lds"]
    phase.effect(f"%lds_at = mul i32 %other, {lds}", keep=True)
    phase.effect("%lds_own = getelementptr i8, §L %lds, i32 %lds_at", keep=True)
    source = "§G %in_own, i32"
    phase.effect(f"call void @llvm.memcpy.p§P.p§G.i32(§P align {private_align} %private, {source} {PRIVATE}, i1 false)", keep=True)
    if not phase.phase:
        phase.effect(f"call void @llvm.memcpy.p§L.p§G.i32(§L %lds_own, {source} {LDS_STRIDE}, i1 false)", keep=True)
    out = Region("%out_own", "G", OUT_STRIDE, _align(strides["out"]), True)
    private = Region("%private", "P", PRIVATE, private_align, True)
    phase.regions = [
        Region("%in", "G", IN_STRIDE, 16, False), Region("%in_own", "G", IN_STRIDE, _align(strides["in"]), False),
        out, out, private, private, Region("%lds_own", "L", LDS_STRIDE, _align(lds), not phase.phase),
    ]  # fmt: skip
    phase.pool = [DrawnValue("%lane", I32), DrawnValue("%scalar", I64)]
    phase.pool += [phase.load() for _ in range(4)]
    phase.statements(length, 0)
    for given in phase.pool[-24:]:
        width = -(-given.type.bits // 8) * 8
        bits = phase.resize(phase.bits(given), width)
        phase.store_value(bits, out)
    phase.effect("ret void", keep=True)
    return tuple(phase.lines)


def _align(stride: int) -> int:
    return min(16, stride & -stride)
