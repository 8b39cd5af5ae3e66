"""Second kernel of a GEMM with a split K, or with a long activation (`operands.second_pass`).

It adds the partial products in order, then applies the epilogue. The partial products are consecutive and unpadded, all parts of
a product of the batch before those of the next one. A work-item computes ELEMENTS elements of C, THREADS apart, so that adjacent
lanes access adjacent memory. With a gated activation each element of C needs two adjacent elements of the product. The order of
addition is fixed, so the result does not depend on which workgroup ran first.
"""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import division_words, log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.operands import base_activation
from simgpu.asm.gemm.prologue import epilogue_names, epilogue_pointers
from simgpu.asm.gemm.tile_order import PARTS
from simgpu.asm.parts.add_parts import THREADS, add_parts
from simgpu.asm.parts.buffers import OUTSIDE, new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import compare_with_zero
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.problem import GATES, NARROW
from simgpu.operators.gemm.tree import TiledComputation

ELEMENTS = 4
SIZES = ("elements", *("n" + part for part in PARTS), "ldc")


class Reduction:
    """Emits the kernel that turns `partials` into C."""

    def __init__(self, root: TiledComputation) -> None:
        self.root, self.problem = root, root.plan.problem
        self.parts = root.trips("k")
        self.sum_words = dtype(self.problem.accumulator).registers
        self.per = 2 if self.problem.activation in GATES else 1  # elements of the product for one of C
        names = epilogue_names(self.problem)
        name = "_".join(("gemm_reduce", self.problem.accumulator, f"{self.parts}_parts", *names))
        self.k = KernelBuilder(name, root.descriptor.arch, THREADS)

    def emit(self) -> EmittedKernel:
        """Emits sum, epilogue and store."""
        k, problem = self.k, self.problem
        self._prologue()
        values = self._sum()
        self._places(values)
        assert problem.ldc
        m, n = (len(self.root.axes[axis]) for axis in "mn")
        columns = n // self.per
        elements = m * columns
        scales = (problem.alpha, problem.beta)
        typed = [int(x) if problem.epilogue_type == "i32" else float(x) for x in scales]
        part = m * n * self.sum_words * WORD
        strides = (part, problem.m * problem.ldc * dtype(problem.dtype_c).bytes)
        narrow = (float(problem.scale_c),) if problem.dtype_c in NARROW else ()
        scalars = (*strides, *typed, elements, *division_words(columns), problem.ldc, *narrow)
        grid = (-(-elements // (THREADS * ELEMENTS)), self.root.trips("batch"), 1)
        return k.finish(grid=grid, scalars=scalars)

    def _prologue(self) -> None:
        k = self.k
        k.comment("GEMM, second pass: C = activation(alpha·(sum of the parts) + beta·C + bias) + R")
        k.declare("pointer", "partials", "C", *epilogue_pointers(self.problem))
        k.declare("i64", "part_bytes", "batch_c")
        k.declare(self.problem.epilogue_type, "alpha", "beta")
        k.declare("u32", *SIZES)
        if self.problem.dtype_c in NARROW:
            k.declare("f32", "scale_c")
        self.arguments = k.load_arguments()
        k.work_item_x()
        first = of(k.group_x) * (THREADS * ELEMENTS)
        self.index = [k.vector(f"element {e}", first + e * THREADS + k.work_item) for e in range(ELEMENTS)]
        self.inside = [k.s.alloc(f"lanes with element {e}", 2) for e in range(ELEMENTS)]
        for inside, index in zip(self.inside, self.index, strict=True):
            k.v_cmp_gt_u32(inside, self.arguments["elements"], index)

    def _sum(self) -> list[Reg]:
        """Emits the sums over parts and returns ELEMENTS registers with them; gate and up are adjacent."""
        k, arguments, words = self.k, self.arguments, self.sum_words * self.per
        first = of(k.group_y) * self.parts, arguments["part_bytes"]
        resource = new_buffer(k, arguments["partials"], "partials", first)
        addresses = [k.v.alloc("partial's offset") for _ in self.index]
        for address, index, inside in zip(addresses, self.index, self.inside, strict=True):
            k.v_lshlrev_b32(address, log2(words * WORD), index)
            k.v_cndmask_b32(address, OUTSIDE, address, inside)
        step = arguments["part_bytes"][0], arguments["part_bytes"][1]
        values = add_parts(k, self.problem.accumulator, self.parts, resource, step, addresses, words)
        k.free(*addresses, resource)
        return values

    def _buffers(self) -> dict[str, Reg]:
        """Returns raw buffers of C, the residual, the bias and the scales, at this product of the batch."""
        k, problem, found = self.k, self.problem, {}
        of_scales = {name: WORD * shape[0] for name, shape in zip(("scale_a", "scale_b"), problem.scale_shapes or (), strict=False)}
        for name in ("C", *epilogue_pointers(problem)):
            each = self.arguments["batch_c"] if name in ("C", "residual") else of_scales.get(name, 0)
            found[name] = new_buffer(k, self.arguments[name], name, *([(k.group_y, each)] if each else []))
        return found

    def _places(self, values: list[Reg]) -> None:
        """Emits, for each element, its row and column, the epilogue and the store."""
        k, arguments, problem = self.k, self.arguments, self.problem
        self.buffers = self._buffers()
        alpha, beta, compute = arguments["alpha"], arguments["beta"], problem.epilogue_type
        self.epilogue = Epilogue(k, compute, alpha, beta, base_activation(problem), problem.accumulator)
        self.epilogue.prepare()
        self.elements = Elements(k, problem.dtype_c, compute, arguments.get("scale_c"))
        self.elements.prepare()
        self.free = self.epilogue.scratch()
        words = self.elements.words
        self.other = k.v.alloc("C old, bias, residual or scale", words)
        self.row_scale = k.v.alloc("scale of A's row")
        column, address, at = k.v.alloc("column"), k.v.alloc("C offset"), k.v.alloc("offset")
        for e, (value, index) in enumerate(zip(values, self.index, strict=True)):
            k.comment(f"element {e}")
            row = at
            k.v_lshlrev_b32(row, 1, index)
            k.v_mul_hi_u32(row, row, arguments["n_magic"])
            k.v_lshrrev_b32(row, arguments["n_shift"], row, note="row")
            k.set(column, of(index) - of(row) * arguments["n"])
            k.set(address, (of(row) * arguments["ldc"] + column) * self.elements.size)
            k.v_cndmask_b32(address, OUTSIDE, address, self.inside[e])
            if problem.scales_at_end:
                self._row_scale(row, self.inside[e])
            sums = [value[i * words : (i + 1) * words] for i in range(self.per)]
            for number, x in enumerate(sums):
                self._product(x, number, column, at, address, self.inside[e])
            self.epilogue.activate(sums[0], self.free)
            if self.per == 2:
                self.epilogue.multiply(*sums)
            if problem.residual:
                self.epilogue.add(sums[0], self._load(self.elements, "residual", address))
            self.elements.narrow(sums[:1], self.other[0])
            self.elements.store(sums[0], address, self.buffers["C"], note="C")
        k.s_endpgm()

    def _product(self, x: Reg, number: int, column: Reg, at: Reg, address: Reg, inside: Reg) -> None:
        """Emits x = scales · alpha · x + beta · C + bias. number: 1 for the up element of a gated pair, else 0."""
        k, problem, epilogue = self.k, self.problem, self.epilogue
        epilogue.scale(x)
        if problem.scales_at_end:
            self._offset(at, column, number, WORD if problem.scales == "row" else 0, inside)
            epilogue.multiply(x, self._load(Elements(k, "f32", "f32"), "scale_b", at))
            epilogue.multiply(x, self.row_scale)
        if self.per == 1:
            without = k.new_label("beta_0")
            k.branch(compare_with_zero(k, self.arguments["beta"], problem.epilogue_type == "i32"), without)
            epilogue.add_scaled(x, self._load(self.elements, "C", address))
            k.label(without)
        if problem.bias:
            kind = Elements(k, problem.dtype_addend, problem.epilogue_type)
            self._offset(at, column, number, kind.size, inside)
            epilogue.add(x, self._load(kind, "bias", at))

    def _row_scale(self, row: Reg, inside: Reg) -> None:
        """Loads the scale of A's row into `row_scale`."""
        k = self.k
        if self.problem.scales == "row":
            k.v_lshlrev_b32(row, log2(WORD), row)
        else:
            k.v_mov_b32(row, 0)
        k.v_cndmask_b32(row, OUTSIDE, row, inside)
        k.buffer_load(self.row_scale, row, self.buffers["scale_a"], 0, note="scale of A's row")

    def _offset(self, target: Reg, column: Reg, number: int, size: int, inside: Reg) -> None:
        """Emits the byte offset of the product's column in a vector of elements of `size` bytes."""
        k = self.k
        k.set(target, of(column) * (self.per * size) + number * size)
        k.v_cndmask_b32(target, OUTSIDE, target, inside)

    def _load(self, kind: Elements, name: str, offset: Reg) -> Reg:
        """Loads an element of a buffer and converts it to the epilogue's type."""
        kind.load(self.other, offset, self.buffers[name], note=name)
        return kind.widen(self.other, self.other, 0)
