"""The second kernel of a GEMM whose K is split, or whose activation is long (`operands.second_pass`): adds the partial
products in order, then the epilogue.

The partial products lie behind each other, parts of one product of the batch together, without padding.
A work-item takes ELEMENTS elements of C, a workgroup apart, so that lanes stay neighbours in memory.
It adds the parts in their order: the result does not depend on which workgroup ran first.
"""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.tile_order import PARTS, division_words
from simgpu.asm.parts.buffers import OUTSIDE, raw_buffer
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import branch_if_zero, log2
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.plan import GemmPlan

THREADS = 256
ELEMENTS = 4
SIZES = ("parts", "elements", *("n" + part for part in PARTS), "ldc")


def reduce_kernel(plan: GemmPlan) -> EmittedKernel:
    """The kernel that turns `partials` into C."""
    return _Reduction(plan).emit()


class _Reduction:
    def __init__(self, plan: GemmPlan) -> None:
        self.plan, problem = plan, plan.problem
        self.size = dtype(problem.dtype_c).bytes
        self.words = self.size // WORD
        extras = (*(["bias"] * problem.bias), *([problem.activation] * (problem.activation != "none")))
        self.k = KernelBuilder("_".join(("gemm_reduce", problem.dtype_c, *extras)), plan.descriptor.arch, THREADS)

    def emit(self) -> EmittedKernel:
        """Sum, epilogue, store."""
        k, problem = self.k, self.plan.problem
        buffers = ("partials", "C", *(["bias"] * problem.bias))
        self._prologue(buffers)
        values = self._sum()
        self._places(values)
        assert problem.ldc
        elements = problem.m * problem.n
        scales = (problem.alpha, problem.beta)
        typed = [int(x) if problem.dtype_c == "i32" else float(x) for x in scales]
        strides = (elements * self.size, problem.m * problem.ldc * self.size)
        scalars = (*strides, *typed, self.plan.split_k, elements, *division_words(problem.n), problem.ldc)
        grid = (-(-elements // (THREADS * ELEMENTS)), problem.batch, 1)
        return k.finish(grid=grid, scalars=scalars)

    def _prologue(self, buffers: tuple[str, ...]) -> None:
        k, kind = self.k, self.plan.problem.dtype_c
        k.comment("GEMM, second pass: C = activation(alpha·(sum of the parts) + beta·C + bias)")
        for name in buffers:
            k.argument(name, 8, "global_buffer")
        for name in ("part_bytes", "batch_c"):
            k.argument(name, 8, value_type="i64")
        for name in ("alpha", "beta"):
            k.argument(name, self.size, value_type=kind)
        for name in SIZES:
            k.argument(name, 4, value_type="u32")
        self.arguments = k.load_arguments()
        k.work_item_x()
        self.first = k.s.alloc("workgroup's first element")
        k.s_mul_i32(self.first, k.group_x, THREADS * ELEMENTS)
        self.index = [k.v.alloc(f"element {e}") for e in range(ELEMENTS)]
        self.inside = [k.s.alloc(f"lanes with element {e}", 2) for e in range(ELEMENTS)]
        for e, index in enumerate(self.index):
            k.v_add_u32(index, self.first, k.work_item)
            if e:
                k.v_add_u32(index, e * THREADS, index)
            k.v_cmp_gt_u32(self.inside[e], self.arguments["elements"], index)

    def _batch_offset(self, each: Reg, offset: Reg, number: Reg) -> None:
        """offset (64 bits) = number · each."""
        k = self.k
        k.s_mul_i32(offset[1], number, each[1])
        k.s_mul_hi_u32(offset[0], number, each[0])
        k.s_add_u32(offset[1], offset[1], offset[0])
        k.s_mul_i32(offset[0], number, each[0])

    def _sum(self) -> list[Reg]:
        """Registers with the sums of ELEMENTS elements."""
        k, arguments, words = self.k, self.arguments, self.words
        resource, offset, number = k.s.alloc("partials buffer", 4), k.s.alloc("byte offset", 2), k.s.alloc("number")
        k.s_mul_i32(number, k.group_y, arguments["parts"])
        self._batch_offset(arguments["part_bytes"], offset, number)
        raw_buffer(k, resource, arguments["partials"], (offset[0], offset[1]), "partials")
        epilogue = Epilogue(k, self.plan.problem.dtype_c, None, None)
        addresses = [k.v.alloc("partial's offset") for _ in self.index]
        for address, index, inside in zip(addresses, self.index, self.inside, strict=True):
            k.v_lshlrev_b32(address, log2(self.size), index)
            k.v_cndmask_b32(address, OUTSIDE, address, inside)
        values = [k.v.alloc("sum", words) for _ in self.index]
        loaded = [k.v.alloc("part", words) for _ in self.index]
        suffix = "dwordx2" if words == 2 else "dword"
        for value, address in zip(values, addresses, strict=True):
            k.emit(f"buffer_load_{suffix}", value, address, resource, 0, offen=True, note="part 0")
        left, done = k.s.alloc("parts left"), k.new_label("added")
        k.s_sub_u32(left, arguments["parts"], 1)
        k.s_cmp_le_i32(left, 0)
        k.s_cbranch_scc1(done)
        with k.loop("part", left):
            k.s_add_u32(resource[0], resource[0], arguments["part_bytes"][0])
            k.s_addc_u32(resource[1], resource[1], arguments["part_bytes"][1])
            for part, address in zip(loaded, addresses, strict=True):
                k.emit(f"buffer_load_{suffix}", part, address, resource, 0, offen=True, note="next part")
            for value, part in zip(values, loaded, strict=True):
                epilogue.add(value, part)
        k.label(done)
        k.v.free(*loaded, *addresses)
        k.s.free(resource, offset, number, left)
        return values

    def _places(self, values: list[Reg]) -> None:
        """Row and column of each element; epilogue and store."""
        k, arguments, problem = self.k, self.arguments, self.plan.problem
        resource, offset = k.s.alloc("C buffer", 4), k.s.alloc("byte offset", 2)
        self._batch_offset(arguments["batch_c"], offset, k.group_y)
        raw_buffer(k, resource, arguments["C"], (offset[0], offset[1]), "C")
        bias = None
        if problem.bias:
            bias = k.s.alloc("bias buffer", 4)
            raw_buffer(k, bias, arguments["bias"], (0, 0), "bias")
        epilogue = Epilogue(k, problem.dtype_c, arguments["alpha"], arguments["beta"], problem.activation)
        epilogue.prepare()
        free = epilogue.scratch()
        column, address = k.v.alloc("column"), k.v.alloc("C offset")
        old = k.v.alloc("C old, bias", self.words)
        beta = arguments["beta"]
        for e, (value, index) in enumerate(zip(values, self.index, strict=True)):
            k.comment(f"element {e}")
            row = address
            k.v_lshlrev_b32(row, 1, index)
            k.v_mul_hi_u32(row, row, arguments["n_magic"])
            k.v_lshrrev_b32(row, arguments["n_shift"], row, note="row")
            k.v_mul_lo_u32(column, row, arguments["n"])
            k.v_sub_u32(column, index, column)
            k.v_mul_lo_u32(address, row, arguments["ldc"])
            k.v_add_lshl_u32(address, address, column, log2(self.size))
            k.v_cndmask_b32(address, OUTSIDE, address, self.inside[e])
            epilogue.scale(value)
            without = k.new_label("beta_0")
            branch_if_zero(k, beta, problem.dtype_c == "i32", without)
            self._transfer("load", old, address, resource)
            epilogue.add_scaled(value, old)
            k.label(without)
            if bias is not None:
                k.v_lshlrev_b32(column, log2(self.size), column)
                k.v_cndmask_b32(column, OUTSIDE, column, self.inside[e])
                self._transfer("load", old, column, bias)
                epilogue.add(value, old)
            epilogue.activate(value, free)
            self._transfer("store", value, address, resource)
        k.s_endpgm()

    def _transfer(self, direction: str, data: Reg, address: Reg, resource: Reg) -> None:
        suffix = "dwordx2" if self.words == 2 else "dword"
        self.k.emit(f"buffer_{direction}_{suffix}", data, address, resource, 0, offen=True)
