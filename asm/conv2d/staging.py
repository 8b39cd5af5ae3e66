"""A convolution's operands on their way to LDS and fragments: the input halo a channel step, the packed filter a tap at a time."""

from __future__ import annotations

from itertools import product

from simgpu.asm.builder.kernel import DS_REACH, KernelBuilder, LdsRegion
from simgpu.asm.conv2d.pixels import below
from simgpu.asm.parts.buffers import DWORDS, ELEMENT_LOADS, OUTSIDE, REACH, advance_buffer
from simgpu.asm.parts.integer_math import log2, vector_divmod
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Pair
from simgpu.operators.conv2d.tiles import Conv2dPlan


def near(k: KernelBuilder, address: Reg, offset: int, reach: int, scratch: Reg) -> tuple[Reg, int]:
    """A VGPR and an immediate below `reach` for address + offset; the VGPR is `scratch` where the immediate cannot hold it all."""
    if offset < reach:
        return address, offset
    k.v_add_u32(scratch, offset - offset % reach, address)
    return scratch, offset % reach


class HaloStaging:
    """X: element by element from rows of memory, `tile_ic` channels of a pixel a work-item, to chunks of channels in LDS.

    resource: raw buffer at the step's first channel of the image, which ends with the group's channels; outside the image 0.
    """

    def __init__(self, k: KernelBuilder, plan: Conv2dPlan, region: LdsRegion, resource: Reg, scratch: Reg) -> None:
        self.k, self.plan, self.region, self.resource, self.scratch = k, plan, region, resource, scratch
        p = plan.problem
        self.bytes, self.words, self.layout = p.element.bytes, p.element.registers, plan.halo
        self.chunk_words = self.layout.chunk // 4
        self.channels = plan.tile_ic // plan.factor**2
        self.plane_bytes = p.ih * p.iw * self.bytes
        self.write_address, self.last_address = k.v.alloc("X write address"), k.v.alloc("X last write address")
        self.last_lanes = k.s.alloc("lanes with a last pixel", 2)
        self.read_address = k.v.alloc("X read address")

    def allocate(self) -> tuple[tuple[Reg, str], ...]:
        """The arrays' registers, with their names."""
        k, plan = self.k, self.plan
        self.staged = k.v.alloc("X staging", plan.batch * plan.pixel_words)
        self.fragments = k.v.alloc("X fragments", plan.pixels // plan.waves_p // plan.atom.m * plan.fragment_words)
        return (self.staged, "X staging"), (self.fragments, "X fragments")

    def allocate_offsets(self) -> None:
        """The registers that hold from the prologue on where a work-item's pixels are."""
        self.offsets = self.k.v.alloc("X offsets", self.plan.positions * self.plan.factor**2)

    # -- addresses ---------------------------------------------------------------------------

    def prepare_loads(self, top: Reg, left: Reg) -> None:
        """Byte offsets of a work-item's pixels in a channel; top, left: SGPRs with the halo's first row and column in the image."""
        k, plan, layout, threads = self.k, self.plan, self.layout, self.plan.threads
        k.comment(f"X halo: {layout.slots} slots of {layout.chunks} x {layout.chunk} bytes, {plan.positions} pixel(s) a work-item")
        slot = k.v.alloc("slot")
        for position in range(plan.positions):
            k.v_add_u32(slot, position * threads, k.work_item)
            if position == plan.positions - 1:
                below(k, self.last_lanes, layout.slots, slot)
                k.v_min_u32(slot, layout.slots - 1, slot, note="the last slot for those that have none: loaded, not written")
                k.v_lshlrev_b32(self.last_address, log2(layout.chunk), slot)
            row, column = vector_divmod(k, slot, layout.pitch, layout.slots + threads, "halo row")
            if layout.problem.stride[1] > 1:
                phase, place = vector_divmod(k, column, layout.phase_columns, layout.pitch, "column phase")
                k.v_mul_u32_u24(column, layout.problem.stride[1], place)
                k.v_add_u32(column, column, phase)
                k.v.free(phase, place)
            k.v_add_u32(row, top, row)
            k.v_add_u32(column, left, column)
            self._place(position, row, column)
            k.v.free(row, column)
        k.v.free(slot)
        k.v_lshlrev_b32(self.write_address, log2(layout.chunk), k.work_item)
        for address in (self.write_address, self.last_address):
            k.v_add_u32(address, self.region.offset, address, note="X halo in LDS")

    def _place(self, position: int, row: Reg, column: Reg) -> None:
        """Offsets of a pixel, and of those that its further taps as channels read: outside the image OUTSIDE."""
        k, p, f = self.k, self.plan.problem, self.plan.factor
        inside, offset = k.s.alloc("inside", 2), self.scratch
        shifted = k.v.alloc("shifted") if f > 1 else row
        for number, (dy, dx) in enumerate(product(range(f), range(f))):
            down, right = dy * p.dilation[0], dx * p.dilation[1]
            target = self.offsets[position * f * f + number]
            if f > 1:
                k.v_add_u32(shifted, down, row)
            below(k, inside, p.ih, shifted)
            self._times(offset, p.iw * self.bytes, shifted)
            if f > 1:
                k.v_add_u32(shifted, right, column)
            across = shifted if f > 1 else column
            below(k, "vcc", p.iw, across)
            k.s_and_b64("vcc", "vcc", inside)
            k.v_lshl_add_u32(offset, across, log2(self.bytes), offset)
            k.v_cndmask_b32(target, OUTSIDE, offset, "vcc", note=f"pixel {position}, tap {dy},{dx}: bytes, or outside the image")
        k.s.free(inside)
        if f > 1:
            k.v.free(shifted)

    def _times(self, target: Reg, factor: int, value: Reg) -> None:
        k, scalar = self.k, self.k.s.alloc("factor")
        k.s_mov_b32(scalar, factor)
        k.v_mul_lo_u32(target, value, scalar)
        k.s.free(scalar)

    def prepare_reads(self, pixel: Reg, group: Reg, first: Reg) -> None:
        """pixel: the lane's place in an atom, group: its g (VGPRs); first: SGPR, the wave's first byte in a plane."""
        k, plan, layout = self.k, self.plan, self.layout
        row, column = vector_divmod(k, pixel, plan.tile_ow, plan.atom.m, "atom row")
        k.v_mul_u32_u24(row, plan.cut.stride[0] * layout.pitch * layout.chunk, row)
        k.v_lshl_add_u32(column, column, log2(layout.chunk), row)
        k.v_mul_u32_u24(row, layout.plane, group)
        k.v_add_u32(self.read_address, first, column)
        k.v_add_u32(self.read_address, row, self.read_address)
        k.v_add_u32(self.read_address, self.region.offset, self.read_address, note="X fragments in LDS")
        k.v.free(row, column)

    # -- moves -------------------------------------------------------------------------------

    def load(self, batch: int) -> None:
        """One batch of pixels, all channels of the step, into registers."""
        k, plan, f = self.k, self.plan, self.plan.factor
        for place, position in enumerate(self._positions(batch)):
            for channel in range(plan.tile_ic):
                source, tap = divmod(channel, f * f)
                offset = self.offsets[position * f * f + tap]
                address, immediate = near(k, offset, source * self.plane_bytes, REACH, self.scratch)
                first = place * plan.pixel_words + channel * self.words
                k.emit(f"buffer_load_{ELEMENT_LOADS[self.bytes]}", self.staged[first : first + self.words], address,
                       self.resource, 0, offen=True, offset=immediate, note=f"X pixel {position}, channel {channel}")  # fmt: skip

    def _positions(self, batch: int) -> range:
        return range(batch * self.plan.batch, min((batch + 1) * self.plan.batch, self.plan.positions))

    @property
    def batches(self) -> int:
        """How often the staging registers are filled a step."""
        return -(-self.plan.positions // self.plan.batch)

    def write(self, batch: int) -> None:
        """The batch from registers to LDS, narrow elements packed first."""
        k, plan, layout, words = self.k, self.plan, self.layout, self.chunk_words
        for place, position in enumerate(self._positions(batch)):
            first = place * plan.pixel_words
            for word in range(plan.tile_ic * self.bytes // 4 if self.bytes < 4 else 0):
                each = 4 // self.bytes
                target = self.staged[first + word]
                for i in range(1, each):
                    low = self.staged[first + word * each] if i == 1 else target
                    k.v_lshl_or_b32(target, self.staged[first + word * each + i], 8 * self.bytes * i, low)
            last = position == plan.positions - 1
            base, start = (self.last_address, 0) if last else (self.write_address, position * plan.threads * layout.chunk)
            if last and layout.slots % plan.threads:
                k.s_mov_b64("exec", self.last_lanes)
            for chunk in range(layout.chunks):
                address, immediate = near(k, base, start + chunk * layout.plane, DS_REACH, self.scratch)
                source = self.staged[first + chunk * words : first + (chunk + 1) * words]
                k.emit(f"ds_write_b{8 * layout.chunk}", address, source, offset=immediate,
                       note=f"X pixel {position}, chunk {chunk} to LDS")  # fmt: skip
            if last and layout.slots % plan.threads:
                k.s_mov_b64("exec", -1)

    def advance(self, left: Reg) -> None:
        """The buffer to the next step's channels; left: SGPR with the channels from there on, 0 or less if there are none."""
        k, step = self.k, self.k.s.alloc("bytes to the next step")
        k.s_cmp_gt_i32(left, 0)
        k.s_cselect_b32(step, self.channels * self.plane_bytes, 0, note="stay where the last step's channels are")
        advance_buffer(k, self.resource, step, "X")
        k.s.free(step)
        self.limit(left)

    def limit(self, left: Reg) -> None:
        """The buffer ends with the group's channels."""
        k, resource = self.k, self.resource
        k.s_min_i32(resource[2], left, self.channels)
        k.s_mul_i32(resource[2], resource[2], self.plane_bytes, note="bytes of the channels that are left")
        k.s_max_i32(resource[2], resource[2], 1, note="none: no element fits, or the first, which nothing uses")

    def read(self, atom: int, tap: Pair) -> None:
        """The fragment of an atom's pixels under a tap; its row counts from the read address's."""
        k, plan, layout, words = self.k, self.plan, self.layout, self.chunk_words
        first = atom * plan.fragment_words
        rows = atom * plan.atom.m // plan.tile_ow
        slots = layout.tap(*tap) + layout.pixel(rows, 0)
        for h in range(layout.reads):
            offset = slots * layout.chunk + h * layout.groups * layout.plane
            address, immediate = near(k, self.read_address, offset, DS_REACH, self.scratch)
            target = self.fragments[first + h * words : first + (h + 1) * words]
            k.emit(f"ds_read_b{8 * layout.chunk}", target, address, offset=immediate,
                   note=f"X fragment: pixels {atom * plan.atom.m}.., tap {tap[0]},{tap[1]}")  # fmt: skip

    def next_row(self) -> None:
        """The read address to the next tap row."""
        step = self.layout.tap(1, 0) * self.layout.chunk
        self.k.v_add_u32(self.read_address, step, self.read_address, note="next tap row")

    def first_row(self, rows: int) -> None:
        """Back by as many tap rows."""
        step = self.layout.tap(1, 0) * self.layout.chunk * rows
        self.k.v_subrev_u32(self.read_address, step, self.read_address, note="first tap row")

    def release(self) -> None:
        """Gives all VGPRs back."""
        addresses = self.write_address, self.last_address, self.read_address
        self.k.v.free(self.staged, self.offsets, self.fragments, *addresses, listed=True)


class TapStaging:
    """W, packed: one tap of one channel step is contiguous, and so are all taps of a block in their order.

    resource: raw buffer at the block's first tap; it ends with the last.
    """

    def __init__(self, k: KernelBuilder, plan: Conv2dPlan, region: LdsRegion, resource: Reg, scratch: Reg) -> None:
        self.k, self.plan, self.region, self.resource, self.scratch = k, plan, region, resource, scratch
        self.layout = layout = plan.taps
        whole = (vec for vec in (16, 8) if vec <= layout.chunk and layout.packed_bytes % (vec * plan.threads) == 0)
        self.vec = next(whole, 4)
        self.pieces = layout.packed_bytes // self.vec
        self.loads = -(-self.pieces // plan.threads)
        self.spare = self.pieces % plan.threads > 0
        self.chunk_words = layout.chunk // 4
        self.load_offset = k.v.alloc("W load offset")
        self.write_address, self.read_address = k.v.alloc("W write address"), k.v.alloc("W read address")
        self.stage_step = k.s.alloc("bytes to the other stage of W")
        self.busy_lanes = k.s.alloc("lanes with a piece of W", 2)

    def allocate(self) -> tuple[tuple[Reg, str], ...]:
        """The arrays' registers, with their names."""
        k, plan = self.k, self.plan
        self.fragments = k.v.alloc("W fragments", plan.tile_oc // plan.waves_oc // plan.atom.n * plan.fragment_words)
        return ((self.fragments, "W fragments"),)

    def allocate_staging(self) -> tuple[tuple[Reg, str], ...]:
        """The registers of a tap on its way."""
        self.staged = self.k.v.alloc("W staging", self.loads * self.vec // 4)
        return ((self.staged, "W staging"),)

    def _swizzled(self, target: Reg, channel: Reg, group: Reg) -> None:
        """target = the LDS byte of a chunk from its channel's row on."""
        k, layout = self.k, self.layout
        line, step, count = layout.swizzle_terms
        k.v_lshrrev_b32(target, log2(line), channel)
        k.v_and_b32(target, count - 1, target)
        if step > 1:
            k.v_lshlrev_b32(target, log2(step), target)
        k.v_xor_b32(target, group, target)
        k.v_lshlrev_b32(target, log2(layout.chunk), target)

    def prepare(self, channel: Reg, group: Reg, first: Reg) -> None:
        """channel: the lane's place in an atom, group: its g (VGPRs); first: SGPR, the wave's first byte of a tap."""
        k, layout = self.k, self.layout
        row = layout.row * layout.reads
        k.comment(f"W: taps of {layout.channels} x {row} bytes, two in LDS, {self.loads} load(s) of {self.vec} bytes")
        place, other = k.v.alloc("channel"), k.v.alloc("chunk")
        k.v_lshlrev_b32(self.load_offset, log2(self.vec), k.work_item)
        if self.spare:
            spare_from = self.pieces - (self.loads - 1) * self.plan.threads
            below(k, self.busy_lanes, spare_from, k.work_item)
        k.v_lshrrev_b32(place, log2(row), self.load_offset)
        k.v_lshrrev_b32(other, log2(layout.chunk), self.load_offset)
        k.v_and_b32(other, layout.groups - 1, other)
        self._swizzled(self.write_address, place, other)
        k.v_mul_u32_u24(place, layout.row, place)
        k.v_and_b32(other, layout.chunk - 1, self.load_offset)
        k.v_add3_u32(self.write_address, place, other, self.write_address)
        if layout.reads > 1:
            k.v_lshrrev_b32(other, log2(layout.row), self.load_offset)
            k.v_and_b32(other, layout.reads - 1, other, note="h")
            k.v_mul_u32_u24(other, layout.part, other)
            k.v_add_u32(self.write_address, other, self.write_address)
        self._swizzled(self.read_address, channel, group)
        k.v_mul_u32_u24(place, layout.row, channel)
        k.v_add3_u32(self.read_address, first, place, self.read_address)
        for address in (self.write_address, self.read_address):
            k.v_add_u32(address, self.region.offset, address, note="W in LDS")
        k.s_mov_b32(self.stage_step, layout.nbytes)
        k.v.free(place, other)

    def load(self) -> None:
        """The next tap into registers; behind the last 0."""
        k, words = self.k, self.vec // 4
        for load in range(self.loads):
            address, immediate = near(k, self.load_offset, load * self.plan.threads * self.vec, REACH, self.scratch)
            k.emit(f"buffer_load_{DWORDS[words]}", self.staged[load * words : (load + 1) * words], address, self.resource, 0,
                   offen=True, offset=immediate, note=f"W tap, load {load}")  # fmt: skip
        k.v_add_u32(self.load_offset, self.layout.packed_bytes, self.load_offset, note="next tap")

    def write(self) -> None:
        """The staged tap to LDS."""
        k, words = self.k, self.vec // 4
        step = self.plan.threads * self.vec // self.layout.reads  # whole periods of the swizzle
        for load in range(self.loads):
            if self.spare and load == self.loads - 1:
                k.s_mov_b64("exec", self.busy_lanes)
            k.emit(f"ds_write_b{8 * self.vec}", self.write_address, self.staged[load * words : (load + 1) * words],
                   offset=load * step, note=f"W tap to LDS, load {load}")  # fmt: skip
        if self.spare:
            k.s_mov_b64("exec", -1)

    def read(self, atom: int) -> None:
        """The fragment of an atom's output channels."""
        k, words, first = self.k, self.chunk_words, atom * self.plan.fragment_words
        for h in range(self.layout.reads):
            target = self.fragments[first + h * words : first + (h + 1) * words]
            k.emit(f"ds_read_b{8 * self.layout.chunk}", target, self.read_address,
                   offset=atom * self.plan.atom.n * self.layout.row + h * self.layout.part,
                   note=f"W fragment: channels {atom * self.plan.atom.n}..")  # fmt: skip

    def other_stage(self) -> None:
        """Writes and reads go to the other stage from here on."""
        k = self.k
        for address in (self.write_address, self.read_address):
            k.v_add_u32(address, self.stage_step, address, note="the other stage")
        k.s_sub_u32(self.stage_step, 0, self.stage_step)

    def release(self) -> None:
        """Gives all VGPRs back."""
        self.k.v.free(self.staged, self.load_offset, self.write_address, self.read_address, self.fragments, listed=True)
