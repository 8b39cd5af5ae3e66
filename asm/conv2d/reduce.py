"""Second kernel of a convolution: adds the parts of Y's sums, and applies the epilogue.

A work-item has 16 adjacent bytes of sums.
"""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.conv2d.place import compare_below, load_arguments, scalars
from simgpu.asm.parts.add_parts import THREADS, add_parts
from simgpu.asm.parts.buffers import new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import scalar_divmod
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
        first = k.scalar("first element", of(k.group_x) * self.share)
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
            epilogue.apply(value, bias, scratch)
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
        k.free(offset, resource)
        return total

    def _buffer(self, name: str, first: Reg, size: int) -> tuple[Reg, Reg]:
        """Returns an array's buffer from the workgroup's first element to its last, and the work-item's byte offset in it."""
        k, nbytes = self.k, (self.count - of(first)).least(self.share) * size
        resource = new_buffer(k, self.arguments[name], name, (first, size), nbytes=nbytes)
        return resource, k.vector(f"{name} offset", of(k.work_item) * (self.each * size))

    def _bias(self, first: Reg) -> list[Reg] | list[None]:
        """Returns the bias of each of the work-item's elements, in the epilogue's type; None without one."""
        k, p = self.k, self.p
        if not p.bias:
            return [None] * self.each
        kind = Elements(k, p.gemm.dtype_addend, p.gemm.epilogue_type)
        resource = new_buffer(k, self.arguments["bias"], "bias", nbytes=p.oc * kind.size)
        # Element i has channel i // pixels % oc. With channels last, pixels is 1.
        pixels, start = p.oh * p.ow if p.layout == "nchw" else 1, k.s.alloc("element")
        k.s_mov_b32(start, first)
        rest = scalar_divmod(k, start, pixels, self.count + self.share, "pixel")
        channel = scalar_divmod(k, start, p.oc, -(-self.count // pixels) + self.share, "channel")
        found = []
        for e in range(self.each):
            at, target = k.vector("element", of(k.work_item) * self.each + rest + e), k.v.alloc("bias", kind.words)
            if pixels >= self.share:  # the next channel's first pixel may be among a workgroup's elements, but no other's
                compare_below(k, "vcc", pixels, at)
                k.v_cndmask_b32(at, 1, 0, "vcc")
            else:
                k.set(at, of(at, pixels + self.share) // pixels)
            k.set(at, (of(at) + channel).below(p.oc + self.share + 1) % p.oc * kind.size)
            kind.load(target, at, resource, note="bias")
            found.append(kind.widen(target, target, 0))
            k.v.free(at)
        return found

    def _store(self, elements: Elements, values: list[Reg], spare: Reg, resource: Reg, offset: Reg) -> None:
        """Stores a work-item's elements at once, unless the end of Y cuts words, because a buffer's end clips only whole ones."""
        if elements.size >= WORD or self.count % self.each == 0:
            elements.store(elements.narrow(values, spare), offset, resource, note="Y", count=self.each)
            return
        for e, value in enumerate(values):
            elements.store(elements.narrow([value], spare), offset, resource, e * elements.size, f"Y, element {e}")
