"""Kernel builder: instructions by name, registers, labels, loops, LDS regions, arguments.

    k = KernelBuilder("scale", "gfx908", workgroup_size=64)
    x = k.v.alloc("x", 4)
    k.buffer_load(x, offset, resource, 0, note="x")
    kernel = k.finish(grid=(8, 1, 1))

`finish` inserts s_waitcnt and s_nop (waits.py); emitters never write them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simgpu.asm.builder import metadata
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import Formula, is_scalar, operand_of, steps_of
from simgpu.asm.builder.instruction import Instr, analyse
from simgpu.asm.builder.metadata import Header, KernelArgument, Resources
from simgpu.asm.builder.registers import WORD, Operand, RegisterFile, operand_text
from simgpu.asm.builder.waits import Comment, Item, Label, schedule
from simgpu.hardware.errors import LaunchError, ResourceError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.resources import RESERVED_SGPRS, ResourcePlan

SGPR_LIMIT = 102  # s0..s101, ISA guides, "SGPRs"
VGPR_LIMIT = 256  # registers that an encoding can name in each of the two files
LDS_LIMIT = {"gfx908": 65536, "gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
KERNARG_POINTER_SGPRS = 2
MNEMONIC_PREFIXES = ("s_", "v_", "ds_", "buffer_", "global_", "flat_")
NOTE_COLUMN = 64
WITHOUT_WIDTH = ("ds_read", "ds_write", "buffer_load", "buffer_store", "s_load")  # see `_with_width`
# Loads of 8 and 16 bits are zero-extended into a register each.
NARROW = {"ds_read": ("u8", "u16"), "buffer_load": ("ubyte", "ushort"), "buffer_store": ("byte", "short")}
OPPOSITE = {"scc0": "scc1", "scc1": "scc0", "vccz": "vccnz", "vccnz": "vccz"}  # conditions of branches
SCALAR_COMPARISONS = ("s_cmp_", "s_bitcmp1_")
# An instruction's origin is the first frame outside these files.
BUILDER_FILES = (__file__, contextlib.__file__)


@dataclass(frozen=True)
class LdsRegion:
    """Named bytes of LDS."""

    name: str
    offset: int  # bytes from the start of LDS
    size: int  # bytes


@dataclass
class Loop:
    """An open loop."""

    kernel: KernelBuilder
    top: str  # label of the first instruction
    exit: str  # label after the loop
    left: Reg  # remaining count; `countdown` leaves the loop when it is 0 or less
    step: int  # decrement of `left` in each iteration
    counted: bool = False  # True once `countdown` is emitted

    def countdown(self) -> None:
        """Emits left -= step, and a branch out of the loop if left <= 0 (signed)."""
        self.counted = True
        self.kernel.s_sub_u32(self.left, self.left, self.step)
        self.kernel.branch(self.kernel.s_cmp_le_i32(self.left, 0), self.exit)


@dataclass
class KernelBuilder:
    """Builds one kernel. Instructions appear in the text in the order in which they are emitted.

    `k.v_add_u32(d, a, b, note="...")` emits the instruction with this name: operands in LLVM's order, modifiers as keywords
    (True for a bare word). It returns its first operand; a scalar comparison returns scc1, its condition for `branch`.
    `ds_read`, `ds_write`, `buffer_load`, `buffer_store` and `s_load` get the width of their data, or of `nbytes` below 4, and
    those of buffers a VGPR as offset. Raises ToolchainError for wrong operands, TargetError for an unknown mnemonic.

    With a plan, registers and LDS come only from the plan, `array` uses its named ranges, and the code object requests
    all of them. ResourceError if the plan runs out. Without a plan the target's limits hold.

    >>> from simgpu.asm.builder.kernel import KernelBuilder
    >>> k = KernelBuilder("fill", "gfx942", workgroup_size=64)
    >>> k.argument("out", 8, "global_buffer")
    >>> out, offset = k.load_arguments()["out"], k.v.alloc("offset")
    >>> _ = k.v_lshlrev_b32(offset, 2, k.work_item, note="bytes")
    >>> _ = k.global_store_dword(offset, k.work_item, out)
    >>> k.s_endpgm()
    >>> k.finish(grid=(1, 1, 1))
    <EmittedKernel fill for gfx942: grid 1x1x1, block 64x1x1, ...>
    """

    name: str
    target: str
    workgroup_size: int  # work-items, all along x
    items: list[Item] = field(default_factory=list)  # instructions, labels and comments so far
    outlined: list[Item] = field(default_factory=list)  # blocks that are placed after the kernel's end
    arguments: list[KernelArgument] = field(default_factory=list)
    lds: list[LdsRegion] = field(default_factory=list)
    plan: ResourcePlan | None = None

    def __post_init__(self) -> None:
        even, plan = self.target != "gfx908", self.plan
        self.s = RegisterFile("s", SGPR_LIMIT if plan is None else plan.sgprs - RESERVED_SGPRS)
        self.v = RegisterFile("v", VGPR_LIMIT if plan is None else plan.arch_vgprs, even)
        self.a = RegisterFile("a", VGPR_LIMIT if plan is None else plan.acc_vgprs, even)
        self.kernarg_pointer = self.s.reserve(0, KERNARG_POINTER_SGPRS, "kernel arguments' address")
        self.group_x = self.s.reserve(2, 1, "workgroup id x")[0]
        self.group_y = self.s.reserve(3, 1, "workgroup id y")[0]
        self.work_item = self.v.reserve(0, 1, "work-item id")[0]
        self._labels: dict[str, int] = {}

    # -- instructions ------------------------------------------------------------------------

    def __getattr__(self, mnemonic: str) -> Callable[..., Any]:
        if not mnemonic.startswith(MNEMONIC_PREFIXES):
            raise AttributeError(mnemonic)

        def emit(*operands: Operand, note: str = "", **modifiers: Any) -> Any:
            return self._emit(sys._getframe(1), mnemonic, operands, note, modifiers)

        return emit

    def emit(self, mnemonic: str, *operands: Operand, note: str = "", **modifiers: Any) -> Any:
        """Emits an instruction by name. Returns its first operand."""
        return self._emit(sys._getframe(1), mnemonic, operands, note, modifiers)

    def _emit(
        self, frame: Any, mnemonic: str, operands: tuple[Operand, ...], note: str, modifiers: dict[str, Any]
    ) -> Any:
        if mnemonic in WITHOUT_WIDTH:
            mnemonic = _with_width(mnemonic, operands, modifiers.pop("nbytes", WORD), modifiers.pop("high", False))
            modifiers = {"offen": True, **modifiers} if mnemonic.startswith("buffer") else modifiers
        while frame.f_code.co_filename in BUILDER_FILES:
            frame = frame.f_back
        where = f"{_short_path(frame.f_code.co_filename)}:{frame.f_lineno}"
        words = tuple(
            name if value is True else f"{name}:{value}"
            for name, value in modifiers.items()
            if value is not False and not (name == "offset" and value == 0)
        ) if modifiers else ()
        instr = Instr(mnemonic, operands, words, note, where)
        instr.effect = analyse(instr, self.target)
        self.items.append(instr)
        return "scc1" if mnemonic.startswith(SCALAR_COMPARISONS) else operands[0] if operands else None

    def move(self, target: Reg, source: Operand, note: str = "") -> None:
        """Emits target = source, between VGPRs and AccVGPRs, register by register. A constant goes to each register."""
        from_acc = isinstance(source, Reg) and source.file == "a"
        name = "v_accvgpr_write_b32" if target.file == "a" else "v_accvgpr_read_b32" if from_acc else "v_mov_b32"
        for word in range(target.count):
            value = source[word] if isinstance(source, Reg) else source
            self._emit(sys._getframe(1), name, (target[word], value), note, {})

    # -- formulas ------------------------------------------------------------------------------

    def set(self, target: Reg, formula: Formula | Operand, note: str = "") -> Reg:
        """Emits target = formula (`formula.of`), and returns the target."""
        self.assign((target,), (formula,), (note,))
        return target

    def vector(self, name: str, formula: Formula | Operand) -> Reg:
        """Emits a formula into a new VGPR, and returns it."""
        return self.set(self.v.alloc(name), formula, name)

    def scalar(self, name: str, formula: Formula | Operand) -> Reg:
        """Emits a formula of SGPRs into a new SGPR, and returns it."""
        return self.set(self.s.alloc(name), formula, name)

    def vectors(self, **named: Formula | Operand) -> list[Reg]:
        """Emits formulas into new VGPRs. What they have in common is computed once."""
        targets = [self.v.alloc(name) for name in named]
        self.assign(targets, tuple(named.values()), tuple(named))
        return targets

    @contextlib.contextmanager
    def temporary(self, formula: Formula | Operand) -> Iterator[Operand]:
        """Yields a register with a formula for the code inside the `with` block, or the operand that it is."""
        operand = operand_of(formula)
        if not isinstance(operand, Formula):
            yield operand
            return
        held = self.set(self._file(operand).alloc("temporary"), operand)
        yield held
        self._file(operand).free(held)

    @contextlib.contextmanager
    def lend(self, *registers: Reg) -> Iterator[None]:
        """Lets the formulas of a block have temporaries in these VGPRs."""
        used = self.v.in_use()
        self.v.free(*registers, listed=True)
        yield
        self.v.restore(used)

    def assign(self, targets: Sequence[Reg], formulas: Sequence[Formula | Operand], notes: Sequence[str]) -> None:
        """Emits targets = formulas, with a note each. A target may be one of the formulas' registers."""
        roots = [operand_of(formula) for formula in formulas]
        steps = list(steps_of(roots))
        last: dict[Any, int] = {operand: number for number, (_, _, operands) in enumerate(steps) for operand in operands}
        last |= {root: len(steps) for root in roots}
        note_of, final = dict(zip(targets, notes, strict=True)), targets[-1]
        own = {root: target for target, root in zip(targets, roots, strict=True) if is_scalar(root) == (target.file == "s")}
        free_from = last.get(final, -1)  # the step from which on the last target may be overwritten
        end = next((number for number, (node, *_) in enumerate(steps) if node == roots[-1]), 0)  # the step that computes it
        held: dict[Any, Any] = {}
        sources: list[Any]
        for number, (node, mnemonic, operands) in enumerate(steps):
            sources = [held.get(operand, operand) for operand in operands]
            for operand in dict.fromkeys(operands):
                if isinstance(operand, Formula) and last[operand] == number and held[operand] not in targets:
                    self._file(operand).free(held[operand])
            if node in own and number >= last.get(own[node], -1):
                held[node] = own[node]
            elif free_from <= number and last[node] <= end and is_scalar(node) == (final.file == "s"):
                held[node] = final
            else:
                held[node] = self._file(node).alloc("temporary")
            if held[node] == final:
                free_from = last[node]
            self.emit(mnemonic, held[node], *sources, note=note_of[own[node]] if node in own else "")
        for target, root in zip(targets, roots, strict=True):
            if held.get(root, root) != target:
                self.emit(f"{target.file}_mov_b32", target, held.get(root, root), note=note_of[target])
        for root in dict.fromkeys(roots):
            if root in held and held[root] not in targets:
                self._file(root).free(held[root])

    def _file(self, formula: Formula) -> RegisterFile:
        return self.s if is_scalar(formula) else self.v

    def free(self, *registers: Reg) -> None:
        """Frees temporaries of any file."""
        for register in registers:
            getattr(self, register.file).free(register)

    def comment(self, text: str) -> None:
        """Emits a comment line."""
        self.items.append(Comment(text))

    def work_item_x(self) -> None:
        """Emits work_item = x of the work-item id. From gfx90a on, the hardware packs x, y and z into one register."""
        if self.target != "gfx908":
            self.v_and_b32(self.work_item, 0x3FF, self.work_item, note="x of the packed work-item id")

    # -- flow --------------------------------------------------------------------------------

    def new_label(self, name: str) -> str:
        """Returns a label that is unique in the kernel."""
        number = self._labels[name] = self._labels.get(name, -1) + 1
        return f".L{self.name}_{name}_{number}"

    def label(self, name: str) -> None:
        """Places a label made by `new_label`."""
        self.items.append(Label(name))

    def branch(self, when: str, label: str) -> None:
        """Emits a branch. when: condition of s_cbranch, such as scc1."""
        self.emit(f"s_cbranch_{when}", label)

    @contextlib.contextmanager
    def loop(self, name: str, count: Operand, step: int = 1) -> Iterator[Loop]:
        """Repeats the body while left > 0. `countdown`, or else the end of the body, subtracts `step` from `left`.

        count: the SGPR that is `left`, or the number with which a new one begins. The body runs at least once.
        """
        left = count if isinstance(count, Reg) else self.scalar(f"left of {name}", count)
        loop = Loop(self, self.new_label(name), self.new_label(f"{name}_exit"), left, step)
        self.label(loop.top)
        yield loop
        if loop.counted:
            self.s_branch(loop.top)
        else:
            self.s_sub_u32(left, left, step)
            self.branch(self.s_cmp_gt_i32(left, 0), loop.top)
        self.label(loop.exit)
        if left is not count:
            self.s.free(left)

    @contextlib.contextmanager
    def block_registers(self) -> Iterator[list[Reg]]:
        """Frees what a block has allocated when it ends, except the registers that the block adds to the list."""
        files = self.s, self.v, self.a
        before = [file.in_use() for file in files]
        kept: list[Reg] = []
        yield kept
        for file, used in zip(files, before, strict=True):
            file.free_since(used, kept)

    @contextlib.contextmanager
    def branch_registers(self) -> Iterator[None]:
        """Frees what a block has allocated when it ends. For a block that ends the kernel: code after it is reached by a branch."""
        files = self.s, self.v, self.a
        before = [file.in_use() for file in files]
        yield
        for file, used in zip(files, before, strict=True):
            file.restore(used)

    @contextlib.contextmanager
    def out_of_line(self, name: str, back: str) -> Iterator[str]:
        """Emits a block after the kernel's end that jumps back to the label `back`. Yields the block's own label."""
        start = self.new_label(name)
        here, self.items = self.items, []
        self.label(start)
        yield start
        self.s_branch(back)
        self.outlined += self.items
        self.items = here

    @contextlib.contextmanager
    def aside(self, when: str, name: str, back: str, likely: bool = False) -> Iterator[None]:
        """Emits a branch to a block after the kernel's end, which jumps back to where the branch is.

        when: as in `branch`. name, back: labels of the block and of the place after the branch. likely: True for a block that most
        waves execute. It stays where it is, and others jump over it.
        """
        if likely:
            with self.jump_over(OPPOSITE[when], back):
                yield
            return
        after = self.new_label(back)
        with self.out_of_line(name, after) as start:
            yield
        self.branch(when, start)
        self.label(after)

    @contextlib.contextmanager
    def jump_over(self, when: str, name: str) -> Iterator[None]:
        """Emits a branch over a block. when: as in `branch`; name: label after the block."""
        after = self.new_label(name)
        self.branch(when, after)
        yield
        self.label(after)

    @contextlib.contextmanager
    def lanes(self, mask: Operand, note: str = "") -> Iterator[None]:
        """Enables only the lanes of a mask, a pair of SGPRs or vcc, for a block. Enables all lanes after it."""
        self.s_mov_b64("exec", mask, note=note)
        yield
        self.s_mov_b64("exec", -1)

    def array(self, name: str, count: int) -> Reg:
        """Allocates `count` VGPRs or AccVGPRs; with a plan, the whole range of this name.

        ResourceError if the plan has no such range, or one of fewer than `count` registers.
        """
        ranges = {} if self.plan is None else {r.name: r for r in self.plan.registers}
        planned = ranges.get(name)
        if self.plan is not None and (planned is None or planned.count < count):
            held = "has no such range" if planned is None else f"gives it {planned.count}"
            raise ResourceError(f"{self.name}: {name} takes {count} registers, the plan {held}")
        file = self.a if planned is not None and planned.file == "acc" else self.v
        return file.alloc(name, count if planned is None else planned.count)

    # -- memory ------------------------------------------------------------------------------

    def region(self, name: str, size: int, align: int = 16) -> LdsRegion:
        """Allocates `size` bytes of LDS after the regions made so far. ResourceError past the plan's or the target's limit."""
        offset = -(-self.lds_bytes // align) * align
        limit = LDS_LIMIT[self.target] if self.plan is None else self.plan.lds_bytes
        if offset + size > limit:
            whose = f"{self.target} has" if self.plan is None else "the plan grants"
            raise ResourceError(
                f"{self.name}: {name} ends at byte {offset + size} of LDS; {whose} {limit} for a workgroup: shrink the tile"
            )
        self.lds.append(LdsRegion(name, offset, size))
        return self.lds[-1]

    @property
    def lds_bytes(self) -> int:
        return max((r.offset + r.size for r in self.lds), default=0)

    def argument(self, name: str, size: int, value_kind: str = "by_value", value_type: str = "") -> None:
        """Appends an explicit kernel argument of `size` bytes, naturally aligned. LaunchError if another one has its name."""
        if any(name == other.name for other in self.arguments):
            raise LaunchError(f"{self.name}: it has an argument {name!r} of its own: give the operand another name")
        end = max((a.offset + a.size for a in self.arguments), default=0)
        offset = -(-end // size) * size
        self.arguments.append(KernelArgument(name, offset, size, value_kind, value_type))

    def declare(self, kind: str, *names: str) -> None:
        """Appends arguments of one type: "pointer", or a number's as in the metadata, such as f32 or u32. Raises as `argument`."""
        for name in names:
            if kind == "pointer":
                self.argument(name, 8, "global_buffer")
            else:
                self.argument(name, int(kind[1:]) // 8, value_type=kind)

    def load_arguments(self) -> dict[str, Reg]:
        """Loads all arguments into consecutive SGPRs, with few wide loads. Returns the SGPRs by name."""
        words = self._header().kernarg_size // 4
        base = self.s.alloc("kernel arguments", max(4, words))
        done = 0
        while done < words:
            count = next(n for n in (16, 8, 4, 2, 1) if n <= words - done)
            held = [a.name for a in self.arguments if done <= a.offset // 4 < done + count]
            self.s_load(base[done : done + count], self.kernarg_pointer, 4 * done, note=" ".join(held))
            done += count
        return {a.name: base[a.offset // 4 : a.offset // 4 + max(1, a.size // 4)] for a in self.arguments}

    # -- the result --------------------------------------------------------------------------

    def _header(self) -> Header:
        return Header(self.name, self.target, self.workgroup_size, tuple(self.arguments))

    def resources(self, items: list[Item]) -> Resources:
        """Returns the registers that `items` use, the LDS of all regions, and the number of instructions."""
        highest = {"v": 0, "a": -1, "s": 3}
        instructions = [item for item in items if isinstance(item, Instr)]
        for reg in {reg for instr in instructions for reg in instr.registers()}:
            if reg.file != "s" or reg.index < SGPR_LIMIT:
                highest[reg.file] = max(highest[reg.file], reg.index + reg.count - 1)
        return Resources(highest["v"] + 1, highest["a"] + 1, highest["s"] + 1, self.lds_bytes, len(instructions))

    def code_object_resources(self, used: Resources) -> Resources:
        """Returns the resources that the code object requests: the plan's, or `used` without a plan.

        The plan's LDS may exceed the target's, if the descriptor is of a board that nobody built. Only a device of that
        descriptor then launches the kernel.
        """
        if self.plan is None:
            return used
        plan = self.plan
        return replace(
            used, vgprs=plan.arch_vgprs, agprs=plan.acc_vgprs, sgprs=plan.sgprs - RESERVED_SGPRS, lds=plan.lds_bytes
        )

    def finish(self, *, operands: tuple[str, ...] | None = None, **launch: Any) -> EmittedKernel:
        """Returns the kernel with waits inserted. Arguments are fields of `EmittedKernel`; operands None means the pointers."""
        items = schedule([*self.items, *self.outlined], self.target)
        used = self.code_object_resources(self.resources(items))
        pointers = tuple(argument.name for argument in self.arguments if argument.value_kind == "global_buffer")
        header = self._header()
        legend = [f"; {line}" for line in self._legend()]
        body = [_line(item) for item in items]
        parts = [*legend, *metadata.prologue(header), *body, *metadata.epilogue(header, used)]
        return EmittedKernel(
            text="\n".join(parts) + "\n",
            name=self.name,
            target=self.target,
            block=(self.workgroup_size, 1, 1),
            resources=used,
            buffers=pointers,
            operands=pointers if operands is None else operands,
            items=tuple(items),
            **launch,
        )

    def _legend(self) -> Iterator[str]:
        for file in (self.s, self.v, self.a):
            for reg, name in file.names:
                yield f"{operand_text(reg):10} {name}"
        for region in self.lds:
            yield f"LDS {region.offset}..{region.offset + region.size - 1}  {region.name}"


def _with_width(mnemonic: str, operands: tuple[Any, ...], nbytes: int, high: bool) -> str:
    """Returns the name with the width of the instruction's data: its second operand in writes to LDS, else its first.

    nbytes: 1 or 2 if a lane moves less than a register. high: True for the upper half of a register.
    """
    if nbytes < WORD:
        return f"{mnemonic}_{NARROW[mnemonic][nbytes - 1]}{'_d16_hi' * high}"
    count = operands[mnemonic == "ds_write"].count
    return f"{mnemonic}_b{32 * count}" if mnemonic.startswith("ds") else f"{mnemonic}_dword" + f"x{count}" * (count > 1)


@functools.cache
def _short_path(path: str) -> str:
    """Returns a file's name with its folder's."""
    return "/".join(path.split(os.sep)[-2:])


def _line(item: Item) -> str:
    if isinstance(item, Label):
        return f"{item.name}:"
    if isinstance(item, Comment):
        return f"  ; {item.text}"
    note = "  ".join([part for part in (item.note, f"[{item.where}]" if item.where else "") if part])
    text = f"  {item.text()}"
    return f"{text:<{NOTE_COLUMN}}; {note}" if note else text
