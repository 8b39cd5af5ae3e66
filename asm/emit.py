"""EmitVisitor: a computation's tree to a kernel, and the moves that operators share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.metadata import Resources, joined
from simgpu.asm.builder.registers import Operand
from simgpu.asm.builder.toolchain import SOURCE_NAME, assemble
from simgpu.asm.builder.waits import Item
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.tree import Node

# A raw buffer: stride 0, num_records bytes. A lane whose offset is at or past them reads 0 and
# stores nothing (ISA guides, "Buffer Addressing", range checking); OUTSIDE is such an offset: the
# inline constant -2.0 has bits 0xc0000000, so that v_cndmask_b32 needs no register for it, and it
# stays outside whatever an instruction's own offset adds.
NUM_RECORDS = 0x80000000
OUTSIDE = -2.0
# Word 3: 32-bit data format, what gfx9 wants of a valid raw resource (Composable Kernel's too).
RESOURCE_WORD3 = 0x00020000
WAVEFRONT = 64
EMITTED = re.compile(r"\[([^\[\]]+:\d+)\]$")  # what `simgpu.asm.builder.kernel` writes at the end of an instruction's line


@dataclass(frozen=True)
class EmittedKernel:
    """A kernel as text, and how to launch it; the first of several where `following` is not empty.

    block: work-items of a workgroup; grid: workgroups; resources: what the instructions use;
    plan: the operator's plan, None of a kernel that only adds what others left;
    scalars: the arguments behind the pointers, in order; buffers: names of the
    pointers, in order; operands: the arrays that a caller gives for the whole computation, in order;
    scratch: (name, bytes) of what `launch` allocates for it; following: kernels to launch behind it, on the
    same names; items: the instructions with labels and remarks, as scheduled.
    """

    text: str
    name: str
    target: str
    plan: Any
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    resources: Resources
    scalars: tuple[int | float, ...]
    buffers: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    scratch: tuple[tuple[str, int], ...] = ()
    following: tuple[EmittedKernel, ...] = ()
    items: tuple[Item, ...] = field(default=(), repr=False, compare=False)

    def arguments(self, *buffers: object) -> list[object]:
        """The launch's arguments for these buffers (or addresses); LaunchError where one launch is not all."""
        if self.following:
            raise LaunchError(
                f"{self.name} is the first of {1 + len(self.following)} kernels that share scratch memory: "
                f"use asm.launch(kernel, device, {', '.join(self.operands)})"
            )
        if self.buffers and len(buffers) != len(self.buffers):
            raise LaunchError(f"{self.name} takes {len(self.buffers)} buffers ({', '.join(self.buffers)}), not {len(buffers)}")
        return [*buffers, *self.scalars]

    def bind(self, named: Mapping[str, object]) -> list[object]:
        """The launch's arguments, its pointers taken by name."""
        return [*(named[name] for name in self.buffers), *self.scalars]

    @property
    def steps(self) -> Iterator[EmittedKernel]:
        """This kernel and those behind it, in the order of their launches."""
        yield self
        for kernel in self.following:
            yield from kernel.steps

    @property
    def source(self) -> str:
        """The assembly of all kernels as one file."""
        return joined([kernel.text for kernel in self.steps])

    @property
    def origins(self) -> dict[str, str]:
        """The Python line that emitted each instruction, by its line of `source` as the code object names it.

        Waits and nops that `schedule` inserted have "before" and the line of the instruction that they hold back.
        """
        found: dict[str, str] = {}
        held_back = ""
        lines = self.source.split("\n")
        for number in range(len(lines), 0, -1):
            line = lines[number - 1]
            if emitted := EMITTED.search(line):
                held_back = found[f"{SOURCE_NAME}:{number}"] = emitted[1]
            elif held_back and line.split()[:1] in (["s_waitcnt"], ["s_nop"]):
                found[f"{SOURCE_NAME}:{number}"] = f"before {held_back}"
        return found

    def assemble(self) -> bytes:
        """The linked code object with all kernels; raises ToolchainError."""
        return assemble(self.source, self.target)


def launch(kernel: EmittedKernel, device: Any, *buffers: object) -> list[Any]:
    """Launches a kernel and those behind it on a device (simulated or real); their runs, in order.

    buffers: one for each of `kernel.operands`. Scratch memory is allocated here and freed. LaunchError if
    their number is wrong; raises what the device's launch raises.
    """
    if len(buffers) != len(kernel.operands):
        raise LaunchError(f"{kernel.name} takes {len(kernel.operands)} buffers ({', '.join(kernel.operands)}), not {len(buffers)}")
    named: dict[str, object] = dict(zip(kernel.operands, buffers, strict=True))
    scratch = {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}
    try:
        named |= scratch
        module = device.load(kernel.assemble())
        if getattr(device, "check", False):  # its findings name them
            module.origins = kernel.origins
        return [module[step.name].launch(grid=step.grid, block=step.block, args=step.bind(named)) for step in kernel.steps]
    finally:
        for buffer in scratch.values():
            device.free(buffer)


Emitter = Callable[[Any], EmittedKernel]
EMITTERS: dict[type[Node], Emitter] = {}


def emits(root: type[Node]) -> Callable[[Emitter], Emitter]:
    """Decorator: registers the emitter of trees with such a root."""

    def register(emitter: Emitter) -> Emitter:
        EMITTERS[root] = emitter
        return emitter

    return register


class EmitVisitor:
    """Visits the root of a tree and returns its kernel; the root's type decides how."""

    def visit(self, root: Node) -> EmittedKernel:
        """The kernel of a tree. TargetError for a root that no emitter knows; ResourceError,
        LaunchError for a plan that cannot be emitted."""
        emitter = EMITTERS.get(type(root))
        if emitter is None:
            known = ", ".join(node.__name__ for node in EMITTERS)
            raise TargetError(f"no emitter for a {type(root).__name__}: there are emitters for {known}")
        return emitter(root)


def emit(root: Node) -> EmittedKernel:
    """The kernel of a computation's tree; raises as `EmitVisitor.visit`."""
    return EmitVisitor().visit(root)


# -- moves ---------------------------------------------------------------------------------------


def log2(value: int) -> int | None:
    """The exponent of a power of two, else None."""
    return value.bit_length() - 1 if value > 0 and not value & (value - 1) else None


def vector_divmod(k: KernelBuilder, x: Reg, divisor: int, limit: int, name: str) -> tuple[Reg, Reg]:
    """New VGPRs x // divisor and x % divisor, for 0 <= x < limit; both owned by the caller."""
    quotient, remainder = k.v.alloc(f"{name} quotient"), k.v.alloc(f"{name} remainder")
    shift = log2(divisor)
    if shift is not None:
        k.v_lshrrev_b32(quotient, shift, x)
        k.v_and_b32(remainder, divisor - 1, x)
        return quotient, remainder
    magic, bits = division_magic(divisor, limit)
    k.v_mul_u32_u24(quotient, magic, x)
    k.v_lshrrev_b32(quotient, bits, quotient, note=f"/ {divisor}")
    k.v_mul_u32_u24(remainder, divisor, quotient)
    k.v_sub_u32(remainder, x, remainder)
    return quotient, remainder


def division_magic(divisor: int, limit: int) -> tuple[int, int]:
    """(magic, bits): x // divisor = x · magic >> bits for 0 <= x < limit; magic has 24 bits, the product 32.

    Exact if limit · (magic · divisor - 2^bits) < 2^bits (Granlund and Montgomery 1994, theorem 4.2).
    """
    for bits in range(32):
        magic = -(-(1 << bits) // divisor)
        if magic >> 24 or limit * magic > 1 << 32:
            break
        if limit * (magic * divisor - (1 << bits)) < 1 << bits:
            return magic, bits
    raise TargetError(f"no 24-bit multiplier divides numbers below {limit} by {divisor}")


def raw_buffer(
    k: KernelBuilder, resource: Reg, base: Reg, bytes_: tuple[Operand, Operand], name: str
) -> None:
    """A raw buffer resource in 4 SGPRs whose byte 0 is base (a pair) + bytes_ (low, high words)."""
    k.s_add_u32(resource[0], base[0], bytes_[0], note=f"{name}: base of the tile, 64 bits")
    k.s_addc_u32(resource[1], base[1], bytes_[1])
    k.s_mov_b32(resource[2], NUM_RECORDS, note="bytes in range")
    k.s_mov_b32(resource[3], RESOURCE_WORD3, note="raw, 32-bit data")


def advance_buffer(k: KernelBuilder, resource: Reg, step: Operand, name: str) -> None:
    """Moves a raw buffer's base by `step` bytes (unsigned, 32 bits)."""
    k.s_add_u32(resource[0], resource[0], step, note=f"{name}: next tile")
    k.s_addc_u32(resource[1], resource[1], 0)


def clip(k: KernelBuilder, target: Reg, offset: Reg, limit: Reg, index: Reg, note: str = "") -> None:
    """target = offset where index < limit (an SGPR, signed), else OUTSIDE."""
    k.v_cmp_gt_i32("vcc", limit, index)
    k.v_cndmask_b32(target, OUTSIDE, offset, "vcc", note=note)


def branch_if_zero(k: KernelBuilder, value: Reg, integer: bool, label: str) -> None:
    """Goes to `label` where a scalar argument of 32 or 64 bits is 0; a float's sign does not count."""
    magnitude = k.s.alloc("magnitude")
    if integer:
        k.s_mov_b32(magnitude, value)
    else:
        k.s_and_b32(magnitude, value[value.count - 1], 0x7FFFFFFF)
    if value.count == 2:
        k.s_or_b32(magnitude, magnitude, value[0])
    k.s_cmp_eq_u32(magnitude, 0)
    k.s_cbranch_scc1(label)
    k.s.free(magnitude)
