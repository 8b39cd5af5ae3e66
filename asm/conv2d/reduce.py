"""Second kernel of a convolution: adds the parts of Y's sums, and applies the epilogue.

A work-item has 16 adjacent bytes of sums.
"""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.conv2d.arguments import load_arguments, scalars
from simgpu.asm.parts.add_parts import THREADS, add_parts
from simgpu.asm.parts.buffers import buffer_at
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import log2, scalar_divmod, vector_divmod
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.tiles import Conv2dPlan

WIDE = 16  # bytes of sums of a work-item: one 128-bit load
MOST_ELEMENTS = 1 << 32
PARTS = "parts"  # name of the array of partial sums


class Reduction:
    """Emits the kernel whose operands are PARTS (plan.split_ic arrays of sums in Y's layout), Y and the bias."""

    def __init__(self, plan: Conv2dPlan) -> None:
        self.plan, self.p = plan, plan.problem
        self.count = self.p.n * self.p.oc * self.p.oh * self.p.ow
        if self.count >= MOST_ELEMENTS:
            raise LaunchError(f"{plan.title}: Y of {self.count} elements takes a second kernel, which has at most 2^32")
        name = f"conv2d_epilogue_{self.p.dtype}_{self.p.dtype_c}_{plan.split_ic}_parts"
        self.k = KernelBuilder(name, plan.descriptor.arch, THREADS)
        self.arguments = load_arguments(self.k, self.p, (PARTS, "Y"), True)
        self.words = dtype(self.p.accumulator).registers
        self.each = WIDE // (4 * self.words)  # elements of a work-item
        self.share = THREADS * self.each  # elements of a workgroup

    def emit(self) -> EmittedKernel:
        k, p = self.k, self.p
        k.comment(f"Y from the sum of {self.plan.split_ic} parts of {self.count} elements, {self.share} a workgroup")
        k.work_item_x()
        first = k.s.alloc("first element")
        k.s_mul_i32(first, k.group_x, self.share)
        total = self._sum(first)
        compute = p.gemm.epilogue_type
        epilogue = Epilogue(k, compute, self.arguments.get("alpha"), None, p.activation, p.accumulator)
        elements = Elements(k, p.dtype_c, compute, self.arguments.get("scale_c"))
        epilogue.prepare()
        elements.prepare()
        resource, offset = self._buffer("Y", first, elements.size)
        added = self._bias(first)
        scratch, spare = epilogue.scratch(), k.v.alloc("spare")
        values = [total[e * self.words : (e + 1) * self.words] for e in range(self.each)]
        for value, bias in zip(values, added, strict=True):
            epilogue.scale(value)
            if p.bias:
                epilogue.add(value, bias)
            epilogue.activate(value, scratch)
        self._store(elements, values, spare, resource, offset)
        k.s_endpgm()
        return k.finish(grid=(-(-self.count // self.share), 1, 1), scalars=scalars(p))

    def _sum(self, first: Reg) -> Reg:
        """Returns registers with the work-item's sums."""
        k, size = self.k, 4 * self.words
        resource, offset = self._buffer(PARTS, first, size)
        step = self.count * size
        words = step & 0xFFFFFFFF, step >> 32
        (total,) = add_parts(k, self.p.accumulator, self.plan.split_ic, resource, words, [offset], WIDE // 4)
        k.v.free(offset)
        k.s.free(resource)
        return total

    def _buffer(self, name: str, first: Reg, size: int) -> tuple[Reg, Reg]:
        """Returns an array's buffer from the workgroup's first element to its last, and the work-item's byte offset in it."""
        k, resource, offset = self.k, self.k.s.alloc(f"{name} buffer", 4), self.k.v.alloc(f"{name} offset")
        buffer_at(k, resource, self.arguments[name], name, (first, size))
        k.s_sub_u32(resource[2], self.count, first)
        k.s_min_u32(resource[2], resource[2], self.share)
        if size > 1:
            k.s_lshl_b32(resource[2], resource[2], log2(size))
        k.v_lshlrev_b32(offset, log2(self.each * size), k.work_item)
        return resource, offset

    def _bias(self, first: Reg) -> list[Reg]:
        """Returns the bias of each of the work-item's elements, in the epilogue's type."""
        k, p = self.k, self.p
        if not p.bias:
            return [Reg("v", 0, 0)] * self.each
        kind, resource = Elements(k, p.gemm.dtype_addend, p.gemm.epilogue_type), k.s.alloc("bias buffer", 4)
        buffer_at(k, resource, self.arguments["bias"], "bias")
        k.s_mov_b32(resource[2], p.oc * kind.size)
        # Element i has channel i // pixels % oc. With channels last, pixels is 1.
        pixels, start = p.oh * p.ow if p.layout == "nchw" else 1, k.s.alloc("element")
        k.s_mov_b32(start, first)
        rest = scalar_divmod(k, start, pixels, self.count + self.share, "pixel")
        channel = scalar_divmod(k, start, p.oc, -(-self.count // pixels) + self.share, "channel")
        found = []
        for e in range(self.each):
            at, target = k.v.alloc("element"), k.v.alloc("bias", kind.words)
            k.v_lshlrev_b32(at, log2(self.each), k.work_item)
            k.v_add_u32(at, rest, at)
            if e:
                k.v_add_u32(at, e, at)
            self._divide(at, pixels)
            k.v_add_u32(at, channel, at)
            quotient, remainder = vector_divmod(k, at, p.oc, p.oc + self.share + 1, "channel")
            k.v_lshlrev_b32(at, log2(kind.size), remainder)
            kind.load(target, at, resource, note="bias")
            found.append(kind.widen(target, target, 0))
            k.v.free(at, quotient, remainder)
        return found

    def _divide(self, x: Reg, pixels: int) -> None:
        """Emits x //= pixels, for x < pixels + elements of a workgroup."""
        k = self.k
        if pixels >= self.share:
            bound = k.s.alloc("pixels")
            k.s_mov_b32(bound, pixels)
            k.v_cmp_le_u32("vcc", bound, x)
            k.v_cndmask_b32(x, 0, 1, "vcc")
            k.s.free(bound)
        elif pixels > 1:
            quotient, remainder = vector_divmod(k, x, pixels, pixels + self.share, "channel")
            k.v_mov_b32(x, quotient)
            k.v.free(quotient, remainder)

    def _store(self, elements: Elements, values: list[Reg], spare: Reg, resource: Reg, offset: Reg) -> None:
        """Stores a work-item's elements at once, unless the end of Y cuts words, because a buffer's end clips only whole ones."""
        if elements.size >= WORD or self.count % self.each == 0:
            elements.store(elements.narrow(values, spare), offset, resource, note="Y", count=self.each)
            return
        for e, value in enumerate(values):
            elements.store(elements.narrow([value], spare), offset, resource, e * elements.size, f"Y, element {e}")
