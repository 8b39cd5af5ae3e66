"""Convolution, direct: Y = X * W from the tree's plan to kernels. Sizes are compiled in; only pointers are arguments.

A workgroup computes tOH x tOW pixels of an image by tOC channels. The input halo is written to LDS once per channel step. Every
tap then reads its pixels from there at a fixed distance. Filters are packed as (OC/tOC, IC/tIC, KH, KW, tOC, tIC), contiguous in
the order of use, and pass through two stages of LDS. There is one barrier per tap: loads of the next tap's filters and of the
next step's halo are in flight during this tap's matrix instructions. In nchw these use W as A and X as B, so that adjacent lanes
have adjacent pixels, and Y is stored in rows of pixels. In nhwc X is A, and adjacent lanes have adjacent channels. Edges: raw
buffers end with the channels, and pixels outside the image have the offset OUTSIDE. With split input channels, blocks store partial
sums that a second kernel adds. The filter may be cut into windows of taps, which are steps like channel steps
(`operators.conv2d.problem.with_window`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from math import prod

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.own_taps import OwnTaps
from simgpu.asm.conv2d.place import MOST_BYTES, find_place, load_arguments, scalars, workgroups
from simgpu.asm.conv2d.reduce import PARTS, Reduction
from simgpu.asm.conv2d.staging import HaloStaging, TapStaging
from simgpu.asm.conv2d.store import Store
from simgpu.asm.parts.buffers import buffer_at
from simgpu.asm.parts.integer_math import scalar_divmod
from simgpu.asm.parts.lanes import lane_places
from simgpu.asm.parts.matrix import matrix_instruction
from simgpu.asm.visitor import emit
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.lds import ATOM
from simgpu.operators.conv2d.problem import Pair
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.conv2d.tree import AtomConv2dNode, BlockConv2dNode, Conv2d, WarpConv2dNode
from simgpu.operators.tree import Visitor

UNROLLED = 1024  # matrix instructions of a loop body without a loop over tap rows: 8 KiB of the 32 KiB instruction cache
MOST_WORKGROUPS = (1 << 32) - 1  # a launch has 32 bits of work-items along a dimension (HSA, dispatch packet)


@emit.register(Conv2d)
def emit_conv2d(root: Conv2d) -> EmittedKernel:
    """Returns the kernel of a convolution's tree, followed by the one that adds partial sums if channels are split.

    Operands: X, W packed (`operators.packed_filter`), Y, and the bias if there is one. LaunchError for sizes past the limits of
    addresses.
    """
    plan = root.plan
    check(plan)
    return ConvEmitter(root).visit(root)


def check(plan: Conv2dPlan) -> None:
    """Raises LaunchError if a plan cannot be emitted."""
    p, e = plan.problem, plan.problem.element.bytes
    last, sums = p.layout == "nhwc", dtype(p.accumulator if plan.second_pass else p.dtype_c).bytes
    channels = (p.ic, p.oc) if last else (plan.step_channels, plan.tile_oc)
    spans = {
        "input pixels" if last else "input channels of a step": channels[0] * p.ih * p.iw * e,
        "output pixels" if last else "output channels of a tile": channels[1] * p.oh * p.ow * sums,
        "filters of a tile": plan.ic_steps * plan.tiled_problem.kh * plan.tiled_problem.kw * plan.taps.packed_bytes,
    }
    for name, nbytes in spans.items():
        if nbytes >= MOST_BYTES:
            raise LaunchError(f"{plan.title}: the {name} take {nbytes} bytes, the limit is 2^30: use smaller images or filters")
    if plan.blocks * plan.threads > MOST_WORKGROUPS:
        raise LaunchError(f"{plan.title}: {plan.blocks} workgroups of {plan.threads} work-items pass 2^32: use a smaller batch")


class ConvEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel."""

    def __init__(self, root: Conv2d) -> None:
        plan: Conv2dPlan = root.plan
        self.plan = plan
        p = plan.problem
        self.target = plan.descriptor.arch
        self.mnemonic, self.modifiers = matrix_instruction(plan.atom, self.target, p.dtype)
        name = f"conv2d_{p.dtype}_{p.ic}x{p.ih}x{p.iw}_{p.oc}x{p.kh}x{p.kw}"
        self.k = KernelBuilder(name, self.target, plan.threads, plan=plan.resources)

    def visit_device(self, root: Conv2d) -> EmittedKernel:
        plan, p, k = self.plan, self.plan.problem, self.k
        channels, *sides = (root.loop(axis) for axis in ("oc", "oh", "ow"))
        k.comment(f"Conv2d: one workgroup per {sides[0].tile}x{sides[1].tile} pixels x {channels.tile} channels")
        self.arguments = load_arguments(k, p, ("X", "W", PARTS if plan.second_pass else "Y"), not plan.second_pass)
        self.place = find_place(k, root)
        block = root.first()
        assert isinstance(block, BlockConv2dNode)
        with k.block_registers() as kept:
            self._operands(root, block)
            self.visit(block)
            kept.append(self.acc)
        self._end(root)
        following: tuple[EmittedKernel, ...] = ()
        scratch: tuple[tuple[str, int], ...] = ()
        if plan.second_pass:
            elements = p.n * p.oc * p.oh * p.ow
            scratch = ((PARTS, elements * root.trips("ic") * dtype(p.accumulator).bytes),)
            following = (Reduction(plan).emit(),)
        return k.finish(
            plan=plan, grid=(workgroups(root), 1, 1), scalars=() if plan.second_pass else scalars(p),
            operands=("X", "W", "Y", *(["bias"] if p.bias else [])), scratch=scratch, following=following,
        )  # fmt: skip

    def _end(self, root: Conv2d) -> None:
        """Emits the stores and, if a filter of fractions has added zeros, the loop that keeps infinities and NaN in place."""
        k, store = self.k, Store(self.k, root, self.place, self.arguments, self.acc, self.atoms)
        own = OwnTaps(store) if self.plan.adds_zeros and self.plan.problem.accumulator != "i32" else None
        label = k.new_label("own_taps") if own else ""
        if own:
            own.branch(label)
        with k.branch_registers():
            store.emit()
            k.s_endpgm()
        if own:
            k.label(label)
            own.emit()

    # -- prologue ----------------------------------------------------------------------------

    def _operands(self, root: Conv2d, block: BlockConv2dNode) -> None:
        """Emits buffers of X and W, and addresses of loads, LDS writes and reads; allocates the arrays' registers."""
        k, plan, p, tiles = self.k, self.plan, self.plan.problem, self.place.tile
        step, part = block.loop("ic").tile, root.loop("ic").tile
        sources, steps, of_part = plan.step_channels, -(-len(root.axes["ic"]) // step), -(-part // step)
        self.scratch = k.v.alloc("temporary")
        regions = k.region("W, two taps", 2 * plan.taps.nbytes), k.region("X halo", plan.halo.nbytes)
        resources = k.s.alloc("W buffer", 4), k.s.alloc("X buffer", 4)
        self.w = TapStaging(k, plan, regions[0], resources[0], self.scratch)
        self.x = HaloStaging(k, plan, regions[1], resources[1], self.scratch)
        with k.lend(*self._arrays()):  # the prologue's temporaries use the arrays' registers
            self.left, first = k.s.alloc("input channels left"), k.scalar("the part's first step", of(tiles["part"]) * of_part)
            self.steps = k.scalar("channel steps left", (steps - of(first)).least(of_part, "i32"))
            step_bytes = plan.taps.packed_bytes * block.trips("ky") * block.trips("kx")
            tile_bytes = steps * step_bytes
            blocks = (tiles["group"], root.trips("oc") * tile_bytes), (tiles["OC tile"], tile_bytes), (first, step_bytes)
            buffer_at(k, self.w.resource, self.arguments["W"], "W", *blocks, nbytes=of(self.steps) * step_bytes)
            if plan.windows != (1, 1):
                count = plan.windows[0] * plan.windows[1]
                window = scalar_divmod(k, first, count, steps + 1, "window of taps")
                self.x.first_window(window)
                k.s.free(window)
            k.s_mul_i32(first, first, sources, note="the part's first input channel")
            icg = plan.merged.icg
            each = self.x.channel_bytes
            terms = (tiles["image"], self.x.image_bytes), (tiles["group"], icg * each), (first, each)
            buffer_at(k, self.x.resource, self.arguments["X"], "X", *terms)
            self.place.channels_left(k, self.left, first, icg, p.ic)
            self.x.begin(tiles["group"], first, self.left)
            top = k.scalar("halo's first row", of(tiles["OH tile"]) * (root.loop("oh").tile * p.stride[0]) - p.padding[0])
            column = k.scalar("halo's first column", of(tiles["OW tile"]) * (root.loop("ow").tile * p.stride[1]) - p.padding[1])
            self.x.prepare_loads(top, column)
            lane, group = lane_places(k, ATOM)
            k.s_mul_i32(first, self.place.wave_channel, self.place.channels * plan.taps.row)
            self.w.prepare(lane, group, first)
            rows = self.place.pixels // root.loop("ow").tile
            k.s_mul_i32(first, self.place.wave_pixel, plan.halo.pixel(rows, 0) * plan.halo.chunk)
            self.x.prepare_reads(lane, group, first)
            k.free(lane, group, top, column, first)

    def _arrays(self) -> list[Reg]:
        """Allocates the arrays and returns them. Single registers come last, so that tuples start evenly without gaps."""
        x, w = self.x, self.w
        early = w.loads * w.vec == 4
        arrays = [*x.allocate(), w.allocate()]
        if early:
            x.allocate_offsets()
        arrays.append(w.allocate_staging())
        if not early:
            x.allocate_offsets()
        return arrays

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockConv2dNode) -> None:
        """Emits the channel steps: the halo to LDS, then the taps."""
        k, plan, x, w = self.k, self.plan, self.x, self.w
        atom, self.taps = plan.atom, (block.trips("ky"), block.trips("kx"))
        warp = block.first()
        assert isinstance(warp, WarpConv2dNode)
        self.atoms = block.loop("oc").tile // warp.loop("oc").tile, warp.trips("pixels")
        self.acc = k.a.alloc("accumulators", self.atoms[0] * self.atoms[1] * atom.acc_registers)
        k.move(self.acc, 0)
        k.comment("BlockConv2dNode: the first halo and the first taps")
        w.load()
        x.load(0, self.left)
        w.write()
        k.s_barrier(note="the first tap's filters are in LDS")
        for oc in range(self.atoms[0]):
            w.read(oc)
        w.other_stage()
        w.load()
        k.comment(f"BlockConv2dNode: for IC in steps of {block.loop('ic').tile} channels")
        with k.loop("channel_step", self.steps):
            k.s_barrier(note="all waves have read the last halo")
            for batch in range(plan.batches):
                if batch:
                    x.load(batch, self.left)
                x.write(batch, self.left)
            x.advance(self.left)
            k.s_barrier(note="the halo is in LDS")
            if prod(self.taps) * self.products <= UNROLLED:
                taps = [*product(*map(range, self.taps)), None]
                for tap, following in pairwise(taps):
                    self.visit(warp, tap, following)
            else:
                self._rows(warp)

    def _rows(self, warp: WarpConv2dNode) -> None:
        """Emits the taps of a large filter: the first row, which starts the next halo's loads, then a loop over the other rows."""
        k, x, (high, wide) = self.k, self.x, self.taps
        taps = [*((0, kw) for kw in range(wide)), None]
        for tap, following in pairwise(taps):
            self.visit(warp, tap, following)
        with k.loop("tap_row", high - 1):
            x.next_row()
            for tap, following in pairwise(taps):
                self.visit(warp, tap, following, False)
        x.first_row(high - 1)

    @property
    def products(self) -> int:
        """Matrix instructions of a tap."""
        words, each = self.plan.fragment_words, self.plan.atom.elements_per_lane * self.x.bytes // 4
        return words // each * self.atoms[0] * self.atoms[1]

    def visit_warp(self, warp: WarpConv2dNode, tap: Pair, following: Pair | None, first: bool = True) -> None:
        """Emits one tap: the next tap's filters to LDS, loads of those after it, the matrix instructions.

        following: the tap whose pixels are read ahead. None if they cannot be read yet: a new row of taps or channel step
        comes first. first: True if tap (0, 0) is the step's first.
        """
        k, x, w = self.k, self.x, self.w
        atom = warp.first()
        assert isinstance(atom, AtomConv2dNode)
        where = f"tap {tap[0]},{tap[1]} of {self.taps[0]}x{self.taps[1]}"
        k.comment(f"WarpConv2dNode: {where}{'' if first else ', counted from the row'}")
        w.write()
        w.load()
        if first and tap == (0, 0):
            x.load(0, self.left)
        for pixel in range(self.atoms[1] if tap[1] == 0 and (tap[0] == 0 or not first) else 0):
            x.read(pixel, tap)
        self.visit(atom, following)
        w.other_stage()

    def visit_atom(self, atom: AtomConv2dNode, following: Pair | None) -> None:
        """Emits a tap's matrix instructions, steps outermost, so that accumulators are independent.

        Towards the end comes a barrier: after it the next tap's filters are in LDS, and all waves are done with those of the
        previous tap. From there on, the next tap's fragments are read as soon as their registers are free.
        """
        k, plan, x, w = self.k, self.plan, self.x, self.w
        words, each = plan.fragment_words, plan.atom.elements_per_lane * x.bytes // 4
        steps, (channels, pixels) = words // each, self.atoms
        barrier = max((steps - 1) * channels * pixels, self.products // 2)
        reads: list[Callable[[], None]] = []
        for number, (step, oc, pixel) in enumerate(product(range(steps), range(channels), range(pixels))):
            if number == barrier:
                k.s_barrier(note="the next tap's filters are in LDS")
            start = (oc * pixels + pixel) * plan.atom.acc_registers
            c = self.acc[start : start + plan.atom.acc_registers]
            firsts = oc * words + step * each, pixel * words + step * each
            a, b = (r[first : first + each] for r, first in zip((w.fragments, x.fragments), firsts, strict=True))
            if x.last:
                a, b = b, a
            k.emit(self.mnemonic, c, a, b, c, note=f"Y[{oc}][{pixel}] += W[{oc}] X[{pixel}], step {step}", **self.modifiers)
            if step == steps - 1 and oc == channels - 1 and following is not None:
                reads.append(partial(x.read, pixel, following))
            if step == steps - 1 and pixel == pixels - 1:
                reads.append(partial(w.read, oc))
            while reads and number >= barrier:
                reads.pop(0)()
