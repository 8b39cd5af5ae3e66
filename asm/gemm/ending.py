"""End of a GEMM kernel: buffers and addresses of C, bias, residual and scales; stores clipped or not, with beta or without."""

from __future__ import annotations

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.leaves import RowValues, StoredLeaf
from simgpu.asm.gemm.operands import base_activation, second_pass
from simgpu.asm.gemm.prologue import TilePlace
from simgpu.asm.gemm.store import Accumulators, TileStore
from simgpu.asm.parts.buffers import new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import compare_with_zero
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import GATES


class Ending:
    """Emits the end of a GEMM kernel: `emit` up to the last s_endpgm."""

    def __init__(
        self, k: KernelBuilder, plan: GemmPlan, operands: TileLayouts, arguments: dict[str, Reg],
        place: TilePlace, acc: Accumulators, rows: RowValues | None = None
    ) -> None:
        self.rows = rows  # values of rows, for a leaf on the products
        self.k, self.operands, self.arguments, self.place, self.acc = k, operands, arguments, place, acc
        self.split, self.problem = second_pass(plan), plan.problem
        self.kind = self.problem.accumulator if self.split else self.problem.dtype_c  # type that is stored
        self.compute = self.problem.accumulator if self.split else self.problem.epilogue_type

    def emit(self) -> None:
        """Stores C in one of four ways: inside the view or clipped, without beta or with it. Partial products have two.

        C without beta and inside the view comes first: a jump to code that was not executed waits for it.
        """
        k, scaled = self.k, not self.split and self.problem.activation not in GATES
        store = self._store()
        k.v.free(k.work_item, self.place.lane_row, self.place.group, listed=True)
        with_beta = k.new_label("beta")
        if scaled:
            compare_with_zero(k, self.arguments["beta"], self.compute == "i32")
            k.s_cbranch_scc0(with_beta)
        k.comment("partial products" if self.split else "C, which is not read")
        self._emit(store, False)
        if scaled:
            k.label(with_beta)
            k.comment("C = alpha·A·B + beta·C")
            self._emit(store, True)

    def _emit(self, store: TileStore, scaled: bool) -> None:
        k, clipped = self.k, self.k.new_label("edge")
        k.branch(k.s_cmp_lt_i32(self.place.m_left, self.operands.a.rows), clipped)
        k.branch(k.s_cmp_lt_i32(self.place.n_left, self.operands.b.rows), clipped)
        store.emit(False, scaled)
        k.s_endpgm()
        k.label(clipped)
        k.comment("the same, clipped")
        store.emit(True, scaled)
        k.s_endpgm()

    # -- buffers and addresses ---------------------------------------------------------------------

    def _store(self) -> TileStore:
        k, place, problem, arguments = self.k, self.place, self.problem, self.arguments
        gated = problem.activation in GATES and not self.split
        size, stride = dtype(self.kind).bytes, arguments["ldc"]
        k.comment("C: the lane's first row and column in the tile")
        k.set(stride, of(stride) * size, note="ldc in bytes")
        matrix = place.batch
        if self.split:
            k.set(matrix, of(matrix) * arguments["parts"] + place.part, note="number of the partial product")
        bias, scales, leaf = self._bias(), self._scales(), self._leaf()  # at the product's first column
        left = place.n0
        if gated:
            k.s_lshr_b32(left, left, 1, note="first column of C")
        terms, c = ((place.m0, stride), (left, size), (matrix, arguments["batch_c"])), "partials" if self.split else "C"
        resource = new_buffer(k, arguments[c], c, *terms)
        residual = new_buffer(k, arguments["residual"], "residual", *terms) if "residual" in arguments else None
        row, column, offset = (k.v.alloc(f"C {what}") for what in ("row", "column", "offset"))
        a, b = self.operands.a, self.operands.b
        k.set(row, a.row_of(0, of(place.group, a.groups) * self.acc.lane_rows) + place.wave_row)
        k.set(column, b.row_of(0, of(place.lane_row, b.atom)) + place.wave_column)
        k.set(offset, of(row) * stride + of(column) // (2 if gated else 1) * size)
        epilogue = Epilogue(
            k, self.compute, None if self.split else arguments["alpha"], arguments.get("beta"),
            "none" if self.split else base_activation(problem), problem.accumulator,
        )  # fmt: skip
        elements = Elements(k, self.kind, self.compute, arguments.get("scale_c"))
        epilogue.prepare()
        elements.prepare()
        return TileStore(
            k, self.acc, resource, row, column, offset, stride, place.m_left, place.n_left, epilogue, elements, gated,
            bias, residual, scales, leaf,
        )  # fmt: skip

    def _leaf(self) -> StoredLeaf | None:
        """Returns the leaf on the products, with buffers of its columns."""
        if self.rows is None:
            return None
        return StoredLeaf(self.rows, {name: self._vector(name, self.place.n0, None, WORD) for name in self.rows.leaves.columns})

    def _bias(self) -> tuple[Reg, Elements] | None:
        """Returns a buffer of the bias at the tile's first column, and its elements."""
        if "bias" not in self.arguments:
            return None
        kind = Elements(self.k, self.problem.dtype_addend, self.compute)
        return self._vector("bias", self.place.n0, self.arguments["n"] if self.problem.groups else None, kind.size), kind

    def _scales(self) -> tuple[Reg, Reg] | None:
        """Returns buffers of scales by row and by column. Scales of whole tensors are multiplied into alpha instead."""
        if self.split or not self.problem.scales_at_end:
            return None
        if self.problem.scales == "tensor":
            self._scale_alpha()
            return None
        each = None if self.problem.groups else self.arguments["m"]  # a group's scales start at the pointer
        return self._vector("scale_a", self.place.m0, each, WORD), self._vector("scale_b", self.place.n0, self.arguments["n"], WORD)

    def _vector(self, name: str, first: Reg, each: Reg | None, size: int) -> Reg:
        """Returns a raw buffer at element `first` of a vector.

        each: elements for each product of the batch; None: one vector for all.
        """
        element = of(first) if each is None else of(self.place.batch) * each + first
        return new_buffer(self.k, self.arguments[name], name, (element, size))

    def _scale_alpha(self) -> None:
        """Emits alpha *= both tensors' scales."""
        k, alpha, product = self.k, self.arguments["alpha"], self.k.v.alloc("alpha and scales")
        shift = k.scalar("scale's offset", of(self.place.batch) * WORD)
        k.v_mov_b32(product, alpha)
        for name in ("scale_a", "scale_b"):
            pointer, one = self.arguments[name], name == "scale_a" and self.problem.groups
            k.s_load_dword(pointer[0], pointer, 0 if one else shift, note=name)
            k.v_mul_f32(product, pointer[0], product)
        k.v_readfirstlane_b32(alpha, product)
        k.free(product, shift)
