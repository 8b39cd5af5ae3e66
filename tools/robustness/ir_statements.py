"""Random statements of LLVM IR: operations, accesses of memory, branches and loops.

Comments describe bugs of LLVM, which the programs avoid.
"""

from __future__ import annotations

from simgpu.tools.robustness.ir_operands import I1, I32, I64, FunctionText, Region
from simgpu.tools.robustness.ir_values import (
    BINARY,
    DIVISIONS,
    FLOAT_BINARY,
    FLOAT_TESTS,
    FLOAT_UNARY,
    INTEGER_PAIRS,
    INTEGER_TESTS,
    MANTISSA,
    SHIFTS,
    DrawnType,
    DrawnValue,
    literal,
    memory_type,
    splat,
)  # fmt: skip

ATOM_STRIDE = 64  # bytes of atomics that a lane owns
COMMUTING = ("add", "xor", "umax", "min")  # atomics of all lanes on the same bytes, in any order


class Phase(FunctionText):
    """Draws the body of one function."""

    # -- operations ------------------------------------------------------------------------------

    def operation(self) -> None:
        """Draws one operation, whose result joins the pool."""
        draw = self.rng.random()
        if self.accesses:  # a quarter integers, the rest memory
            draw = draw if draw < 0.25 else 0.68 + (draw - 0.25) * 0.32 / 0.75
        if draw < 0.34:
            made = self.integer_operation()
        elif draw < 0.52:
            made = self.float_operation()
        elif draw < 0.62:
            made = self.vector_operation()
        elif draw < 0.68:
            made = self.convert(self.rng.choice(self.pool), self.random_type())
        elif draw < 0.80:
            made = self.load()
        elif draw < 0.92:
            self.store()
            return
        elif draw < 0.95:
            self.copy()
            return
        else:
            made = self.atomic()
        self.pool.append(made)

    def integer_operation(self) -> DrawnValue:
        rng, type = self.rng, self.integer()
        a, b = self.value(type), self.value(type)
        width, kind = type.width, rng.randrange(12)
        if kind < 4:
            return self.emit(f"{rng.choice(BINARY)} {type} {a.text}, {b.text}", type)
        if kind == 4 and width > 1:
            mask = splat(type, str((1 << (width.bit_length() - 1)) - 1))
            amount = self.emit(f"and {type} {b.text}, {mask}", type, keep=True)
            return self.emit(f"{rng.choice(SHIFTS)} {type} {a.text}, {amount.text}", type)
        if kind == 5 and 1 < width <= 64 and width != 24:  # `division-of-24-bits` in ir_faults.py
            half = self.emit(f"lshr {type} {b.text}, {splat(type, '1')}", type, keep=True)
            odd = self.emit(f"or {type} {half.text}, {splat(type, '1')}", type, keep=True)
            return self.emit(f"{rng.choice(DIVISIONS)} {type} {a.text}, {odd.text}", type)
        if kind == 6:
            test = self.emit(f"icmp {rng.choice(INTEGER_TESTS)} {type} {a.text}, {b.text}", type.of("i1"))
            return test if rng.random() < 0.5 else self.select(test, b, a)
        if kind == 7 and width > 1:
            return self.call(f"{rng.choice(INTEGER_PAIRS)}.{type.suffix}", type, f"{type} {a.text}", f"{type} {b.text}")
        if kind == 8 and width in (8, 16, 32, 64, 128):  # LLVM has no remainder of other wide types
            # Masked, because InstCombine turns fshl(0, x, 16) into a shift by the whole width.
            c = self.emit(f"and {type} {self.value(type).text}, {splat(type, str(width - 1))}", type, keep=True)
            return self.call(f"fsh{rng.choice('lr')}.{type.suffix}", type, *(f"{type} {v.text}" for v in (a, b, c)))
        if kind == 9 and not type.count and width > 1:
            name = f"{rng.choice(('sadd', 'uadd', 'ssub', 'usub'))}.with.overflow.{type.suffix}"
            pair = self.emit(f"call {{{type}, i1}} @llvm.{name}({type} {a.text}, {type} {b.text})", type, keep=True)
            field = rng.randrange(2)
            return self.emit(f"extractvalue {{{type}, i1}} {pair.text}, {field}", I1 if field else type)
        if kind == 10 and width > 1:
            name = rng.choice(("ctlz", "cttz", "abs"))
            return self.call(f"{name}.{type.suffix}", type, f"{type} {a.text}", "i1 false")
        name = rng.choice(("ctpop", "bitreverse", *(("bswap",) if width % 16 == 0 else ())))
        return self.call(f"{name}.{type.suffix}", type, f"{type} {a.text}")

    def float_operation(self) -> DrawnValue:
        rng, type = self.rng, self.floating()
        a, b = self.value(type), self.value(type)
        kind = rng.randrange(10)
        if kind < 4:
            # No difference of bfloats: `zero-minus-zero` in ir_faults.py.
            name = rng.choice([name for name in FLOAT_BINARY if (type.element, name) != ("bfloat", "fsub")])
            return self.emit(f"{name} {type} {a.text}, {b.text}", type)
        if kind == 4:
            name = rng.choice(FLOAT_UNARY)
            # LLVM loses the canonical NaN of sqrt(x) for x < 0, so no root of a negative number.
            given = self.call(f"fabs.{type.suffix}", type, f"{type} {a.text}", keep=True) if name == "sqrt" else a
            return self.call(f"{name}.{type.suffix}", type, f"{type} {given.text}")
        if kind == 5:
            test = self.emit(f"fcmp {rng.choice(FLOAT_TESTS)} {type} {a.text}, {b.text}", type.of("i1"))
            # Not of a and b: SelectionDAG turns such a selection into a maximum with max(0, -0) = 0, as if zeros had no sign.
            c, d = self.value(type), DrawnValue(literal(rng, type), type)
            return test if rng.random() < 0.4 else self.select(test, c, d)
        if kind == 6:
            return self.emit(f"fneg {type} {a.text}", type)
        if kind == 7 and MANTISSA[type.element] > 10:
            c = self.value(type)
            return self.call(f"fma.{type.suffix}", type, *(f"{type} {v.text}" for v in (a, b, c)))
        if kind == 8:
            sign = self.canonical(b)
            return self.call(f"copysign.{type.suffix}", type, f"{type} {a.text}", f"{type} {sign.text}")
        return self.call(f"{rng.choice(('minimum', 'maximum'))}.{type.suffix}", type, f"{type} {a.text}", f"{type} {b.text}")

    def vector_operation(self) -> DrawnValue:
        rng = self.rng
        mine = [v for v in self.pool if v.type.count]
        if not mine or rng.random() < 0.2:
            return self.value(DrawnType(rng.choice(("i8", "i16", "i32", "half", "float", "i64")), rng.choice((2, 3, 4, 8, 16))))
        a = rng.choice(mine)
        type, scalar, kind = a.type, DrawnType(a.type.element), rng.randrange(6)
        mask = (1 << type.count.bit_length() - 1) - 1
        if kind < 2:
            place = self.index(mask) if kind else DrawnValue(str(rng.randrange(type.count)), I32)
            return self.emit(f"extractelement {type} {a.text}, i32 {place.text}", scalar)
        if kind < 4:
            place = self.index(mask) if kind == 2 else DrawnValue(str(rng.randrange(type.count)), I32)
            return self.emit(f"insertelement {type} {a.text}, {scalar} {self.value(scalar).text}, i32 {place.text}", type)
        if kind == 4 and not type.floating:
            name = rng.choice(("add", "and", "or", "xor", "smax", "umin"))
            return self.call(f"vector.reduce.{name}.{type.suffix}", scalar, f"{type} {a.text}")
        b, count = self.value(type), rng.choice((2, 3, 4, 8))
        places = ", ".join(f"i32 {rng.randrange(2 * type.count)}" for _ in range(count))
        places = f"<{count} x i32> <{places}>"
        return self.emit(f"shufflevector {type} {a.text}, {type} {b.text}, {places}", DrawnType(type.element, count))

    # -- memory ----------------------------------------------------------------------------------

    def place(self, region: Region, size: int) -> tuple[str, int]:
        """Draws a pointer to `size` bytes of the region; returns its type and text, and its certain alignment."""
        rng = self.rng
        spare = region.size - size
        pointer = f"§{region.space} {region.pointer}"
        align, offset = region.align, rng.randrange(spare + 1)
        if rng.random() < 0.6:
            offset &= -rng.choice((2, 4, 8, 16))
        if rng.random() < 0.35 and spare >= 4:
            scale = rng.choice([s for s in (1, 1, 2, 3, 4, 8, 12, 16) if s <= spare])
            steps = (1 << ((spare // scale + 1).bit_length() - 1)) - 1
            index = self.index(steps)
            offset = rng.randrange(spare - steps * scale + 1)
            by = self.emit(f"mul i32 {index.text}, {scale}", I32, keep=True)
            wide = "i32" if region.space in "LP" else "i64"
            moved = by if wide == "i32" else self.emit(f"zext i32 {by.text} to i64", I64, keep=True)
            made = self.emit(f"getelementptr i8, {pointer}, {wide} {moved.text}", I64, keep=True)
            pointer, align = f"§{region.space} {made.text}", min(align, scale & -scale)
        if offset:
            made = self.emit(f"getelementptr i8, {pointer}, {'i32' if region.space in 'LP' else 'i64'} {offset}", I64, keep=True)
            pointer, align = f"§{region.space} {made.text}", min(align, offset & -offset)
        if region.space != "F" and rng.random() < 0.12:
            made = self.emit(f"§cast{region.space} {pointer} §to", I64, keep=True)
            pointer = f"§F {made.text}"
        return pointer, align

    def load(self) -> DrawnValue:
        type = memory_type(self.rng, self.odd_widths)
        # GlobalISel reads only four of a private i40's bytes.
        odd = type.width in (40, 56)
        region = self.rng.choice([r for r in self.regions if r.size >= type.bits // 8 and not (odd and r.space == "P")])
        pointer, align = self.place(region, type.bits // 8)
        return self.canonical(self.emit(f"load {type}, {pointer}, align {self.claim(align)}", type))

    def store(self) -> None:
        type = memory_type(self.rng, self.odd_widths)
        self.store_value(self.value(type), self.rng.choice([r for r in self.regions if r.writable and r.size >= type.bits // 8]))

    def store_value(self, given: DrawnValue, region: Region) -> None:
        clean = self.canonical(given)
        pointer, align = self.place(region, clean.type.bits // 8)
        self.effect(f"store {clean.type} {clean.text}, {pointer}, align {self.claim(align)}")

    def claim(self, align: int) -> int:
        return 1 << self.rng.randrange(align.bit_length()) if self.rng.random() < 0.2 else align

    def copy(self) -> None:
        """Emits memcpy, memmove or memset of a constant or variable number of bytes; LLVM makes a loop of a variable one."""
        rng = self.rng
        most = rng.choice((1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 15, 16, 17, 24, 29, 31, 32, 33, 45, 63, 80))
        target = rng.choice([r for r in self.regions if r.writable])
        to, align = self.place(target, most)
        size = f"i32 {most if rng.random() < 0.7 else self.index((1 << (most + 1).bit_length() - 1) - 1).text}, i1 false"
        space, aligned = to[1], f"{to[:2]} align {align}{to[2:]}"
        if rng.random() < 0.25:
            self.effect(f"call void @llvm.memset.p§{space}.i32({aligned}, i8 {self.value(DrawnType('i8')).text}, {size})")
            return
        source = rng.choice((*self.regions, target, target))
        at, other_align = self.place(source, most)
        name = "memmove" if source == target or rng.random() < 0.2 else "memcpy"
        self.effect(f"call void @llvm.{name}.p§{space}.p§{at[1]}.i32({aligned}, {at[:2]} align {other_align}{at[2:]}, {size})")

    def atomic(self) -> DrawnValue:
        """Emits an atomic on the lane's own bytes with a result, or on shared ones if the order does not matter."""
        rng, type = self.rng, DrawnType(self.rng.choice(("i32", "i32", "i64", "i64", "i16", "i8")))
        size = type.width // 8
        given = self.value(type)
        scope = rng.choice(("", 'syncscope("agent") ', 'syncscope("workgroup") '))
        if rng.random() < 0.4:
            name = rng.choice(COMMUTING)
            slot = COMMUTING.index(name) * 16 + (8 if type.width == 64 else 0)
            if type.width in (32, 64):
                made = self.emit(f"getelementptr i8, §G %shared, i64 {slot}", I64, keep=True)
                unused = self.fresh()
                self.effect(f"{unused} = atomicrmw {name} §G {made.text}, {type} {given.text} {scope}monotonic, align {size}")
                return given
        region = Region("%atom_own", "G", ATOM_STRIDE, 16, True)
        offset = rng.randrange(0, region.size - size + 1, size)
        wide = "i32" if region.space == "L" else "i64"
        made = self.emit(f"getelementptr i8, §{region.space} {region.pointer}, {wide} {offset}", I64, keep=True)
        pointer = f"§{region.space} {made.text}"
        if rng.random() < 0.2:
            other = self.value(type)
            pair = f"{{{type}, i1}}"
            operands = f"{pointer}, {type} {other.text}, {type} {given.text}"
            both = self.emit(f"cmpxchg {operands} {scope}monotonic monotonic, align {size}", type, keep=True)
            return self.emit(f"extractvalue {pair} {both.text}, 0", type)
        names = ["xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin"]
        names += ["uinc_wrap", "udec_wrap"] if type.width >= 32 else []
        return self.emit(f"atomicrmw {rng.choice(names)} {pointer}, {type} {given.text} {scope}monotonic, align {size}", type)

    # -- control flow ----------------------------------------------------------------------------

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            draw = self.rng.random()
            if depth < 3 and draw < 0.05:
                self.branch(depth)
            elif depth < 3 and draw < 0.08:
                self.loop(depth)
            else:
                self.operation()

    def branch(self, depth: int) -> None:
        """Emits if/else, whose results meet in phis."""
        test, tag = self.value(I1), self.fresh()[1:]
        self.effect(f"br i1 {test.text}, label %yes{tag}, label %no{tag}", keep=True)
        outer, types = list(self.pool), [self.random_type() for _ in range(2)]
        ends = []
        for side in ("yes", "no"):
            self.pool = list(outer)
            self.label(f"{side}{tag}")
            self.statements(self.rng.randrange(1, 8), depth + 1)
            results = [self.divergent(self.value(type)) for type in types]
            ends.append((self.block, results))
            self.effect(f"br label %join{tag}", keep=True)
        self.pool = outer
        self.label(f"join{tag}")
        for number, type in enumerate(types):
            arms = ", ".join(f"[ {results[number].text}, %{block} ]" for block, results in ends)
            self.pool.append(self.emit(f"phi {type} {arms}", type, keep=True))

    def loop(self, depth: int) -> None:
        """Emits a loop of one to eight iterations, a number that is drawn as a value, with two loop-carried values."""
        tag = self.fresh()[1:]
        turns = self.index(7)
        types = [self.random_type() for _ in range(2)]
        starts = [self.divergent(self.value(type)) for type in types]
        before = self.block
        self.effect(f"br label %loop{tag}", keep=True)
        outer = list(self.pool)
        self.label(f"loop{tag}")
        at = len(self.lines)
        carried = [DrawnValue(self.fresh(), type) for type in types]
        counter = self.fresh()
        self.pool = [*outer, *carried, DrawnValue(counter, I32)]
        self.statements(self.rng.randrange(2, 8), depth + 1)
        nexts = [self.value(type) for type in types]
        step = self.emit(f"add i32 {counter}, 1", I32, keep=True)
        more = self.emit(f"icmp ule i32 {step.text}, {turns.text}", I1, keep=True)
        heads = [
            f"  {value.text} = phi {value.type} [ {start.text}, %{before} ], [ {after.text}, %{self.block} ] ; keep"
            for value, start, after in zip(carried, starts, nexts, strict=True)
        ]
        heads.append(f"  {counter} = phi i32 [ 0, %{before} ], [ {step.text}, %{self.block} ] ; keep")
        self.lines[at:at] = heads
        self.effect(f"br i1 {more.text}, label %loop{tag}, label %done{tag}", keep=True)
        self.pool = [*outer, *carried]
        self.label(f"done{tag}")
