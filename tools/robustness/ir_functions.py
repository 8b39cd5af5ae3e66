"""Proves the machine code of small functions of LLVM IR: each integer operation, over widths, vectors and constants.

    python -m simgpu.tools.robustness.ir_functions --target gfx942 [--options=-O2] [--only shl] [--effort 3]

Subjects are those of LLVM's own tests for AMDGPU; the functions are this project's. A function that differs is printed.
"""

from __future__ import annotations

import argparse
import collections
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simgpu.proof.equal import Verdict
from simgpu.proof.ir.read import read_ir
from simgpu.proof.solver import Limits
from simgpu.tools.cases.refinement import compile_function, functions_of, refinement
from simgpu.tools.robustness.ir_proofs import outcome
from simgpu.tools.shared.errors import UsageError

WIDTHS = ("i1", "i8", "i16", "i24", "i32", "i48", "i64", "i65", "i128")
VECTORS = ("<2 x i16>", "<4 x i8>", "<3 x i32>", "<2 x i64>", "<3 x i16>")
WHOLE = (*WIDTHS, *VECTORS)
Text = Iterator[tuple[str, str]]  # a name and a function's text


def suffix(type_: str) -> str:
    """Returns a type as intrinsics' names have it.

    >>> suffix("<2 x i16>"), suffix("i65")
    ('v2i16', 'i65')
    """
    return f"v{type_[1:-1].replace(' x ', '')}" if type_[0] == "<" else type_


def bits(type_: str) -> int:
    """Returns the bits of a type's scalar."""
    return int(type_.rpartition("i")[2].rstrip(">"))


def constant(type_: str, value: int) -> str:
    """Returns a constant, in each element."""
    value = value % (1 << bits(type_))
    if bits(type_) == 1:
        return str(bool(value)).lower() if type_[0] != "<" else f"splat (i1 {str(bool(value)).lower()})"
    return f"splat (i{bits(type_)} {value})" if type_[0] == "<" else str(value)


def function(name: str, result: str, parameters: Sequence[str], lines: Sequence[str]) -> tuple[str, str]:
    """Returns a function with parameters %a, %b, ...; the last line makes %r."""
    taken = ", ".join(f"{type_} %{letter}" for type_, letter in zip(parameters, "abcdef", strict=False))
    return name, "\n".join((f"define {result} @f({taken}) {{", *(f"  {line}" for line in lines), f"  ret {result} %r", "}"))


def binaries(op: str, flags: str = "", types: Sequence[str] = WHOLE, numbers: Sequence[int] = (7,)) -> Text:
    """Yields an operation of two parameters, and of one and a constant."""
    for type_ in types:
        yield function(f"{op}{flags} {type_}", type_, (type_, type_), [f"%r = {op}{flags} {type_} %a, %b"])
        for number in numbers:
            yield function(
                f"{op}{flags} {type_} by {number}", type_, (type_,), [f"%r = {op}{flags} {type_} %a, {constant(type_, number)}"]
            )


def calls(name: str, count: int, types: Sequence[str] = WHOLE, extra: str = "") -> Text:
    """Yields calls of an intrinsic function with `count` operands of a type."""
    for type_ in types:
        operands = ", ".join(f"{type_} %{letter}" for letter in "abc"[:count])
        line = f"%r = call {type_} @llvm.{name}.{suffix(type_)}({operands}{extra})"
        yield function(f"{name}{extra} {type_}", type_, (type_,) * count, [line])


def shifts(op: str) -> Text:
    """Yields shifts by a parameter that is masked, by one that is not, and by constants."""
    yield from binaries(op, numbers=(1, 3, 31))
    for type_ in ("i8", "i16", "i32", "i64", "<2 x i16>"):
        mask = constant(type_, bits(type_) - 1)
        yield function(f"{op} masked {type_}", type_, (type_, type_), [f"%m = and {type_} %b, {mask}", f"%r = {op} {type_} %a, %m"])
    for flags in (" nsw", " nuw") if op == "shl" else (" exact",):
        yield from binaries(op, flags, ("i8", "i32", "i64"), ())


def divisions(op: str) -> Text:
    """Yields divisions by parameters and by constants."""
    for type_ in ("i8", "i16", "i24", "i32", "i64", "<2 x i16>"):
        yield from binaries(op, types=(type_,), numbers=(1, 2, 3, 7, 8, 10, -1))


def overflows() -> Text:
    for name in ("uadd", "sadd", "usub", "ssub", "umul", "smul"):
        for type_ in ("i8", "i16", "i32", "i64", "i128") if "mul" not in name else ("i8", "i16", "i32"):
            pair = f"{{ {type_}, i1 }}"
            yield function(f"{name}.with.overflow {type_}", pair, (type_, type_),
                           [f"%r = call {pair} @llvm.{name}.with.overflow.{type_}({type_} %a, {type_} %b)"])  # fmt: skip


def comparisons() -> Text:
    for type_ in WIDTHS:
        for predicate in ("eq", "ne", "ult", "ule", "sgt", "sge"):
            yield function(f"icmp {predicate} {type_}", "i1", (type_, type_), [f"%r = icmp {predicate} {type_} %a, %b"])
        yield function(f"select {type_}", type_, ("i1", type_, type_), [f"%r = select i1 %a, {type_} %b, {type_} %c"])
        lines = [f"%t = icmp slt {type_} %a, %b", f"%r = select i1 %t, {type_} %b, {type_} {constant(type_, 5)}"]
        yield function(f"select of icmp {type_}", type_, (type_, type_), lines)
    for type_ in VECTORS:
        count = type_[1]
        yield function(f"icmp ugt {type_}", f"<{count} x i1>", (type_, type_), [f"%r = icmp ugt {type_} %a, %b"])
        yield function(
            f"select {type_}", type_, (f"<{count} x i1>", type_, type_), [f"%r = select <{count} x i1> %a, {type_} %b, {type_} %c"]
        )


def casts() -> Text:
    for small in WIDTHS:
        for large in WIDTHS:
            if bits(small) < bits(large):
                yield function(f"zext {small} to {large}", large, (small,), [f"%r = zext {small} %a to {large}"])
                yield function(f"sext {small} to {large}", large, (small,), [f"%r = sext {small} %a to {large}"])
                yield function(f"trunc {large} to {small}", small, (large,), [f"%r = trunc {large} %a to {small}"])
    for a, b in (("<2 x i8>", "<2 x i16>"), ("<4 x i8>", "<4 x i32>"), ("<2 x i16>", "<2 x i64>"), ("<2 x i1>", "<2 x i16>")):
        yield function(f"zext {a}", b, (a,), [f"%r = zext {a} %a to {b}"])
        yield function(f"sext {a}", b, (a,), [f"%r = sext {a} %a to {b}"])
        yield function(f"trunc {b}", a, (b,), [f"%r = trunc {b} %a to {a}"])
    for a, b in (("<2 x i16>", "i32"), ("<4 x i8>", "i32"), ("i64", "<2 x i32>"), ("<4 x i16>", "i64"), ("i48", "<3 x i16>")):
        yield function(f"bitcast {a} to {b}", b, (a,), [f"%r = bitcast {a} %a to {b}"])


def in_registers() -> Text:
    """Yields a field of a register with its sign or zeros, and inserted."""
    for type_ in ("i16", "i32", "i64"):
        for width in (1, 5, 8, bits(type_) // 2 + 1):
            by = bits(type_) - width
            for op in ("ashr", "lshr"):
                lines = [f"%t = shl {type_} %a, {by}", f"%r = {op} {type_} %t, {by}"]
                yield function(f"{op} of shl by {by} {type_}", type_, (type_,), lines)
    for low, width in ((0, 8), (3, 5), (8, 8), (16, 16), (7, 24)):
        lines = [f"%t = lshr i32 %a, {low}", f"%r = and i32 %t, {(1 << width) - 1}"]
        yield function(f"bfe {low} {width}", "i32", ("i32",), lines)
        lines = [f"%t = shl i32 %a, {32 - low - width}", f"%r = ashr i32 %t, {32 - width}"]
        yield function(f"signed bfe {low} {width}", "i32", ("i32",), lines)
    lines = ["%t = shl i32 1, %b", "%m = sub i32 %t, 1", "%r = and i32 %a, %m"]
    yield function("low bits of a number", "i32", ("i32", "i32"), lines)
    lines = ["%x = and i32 %a, %b", "%n = xor i32 %a, -1", "%y = and i32 %n, %c", "%r = or i32 %x, %y"]
    yield function("bfi", "i32", ("i32",) * 3, lines)
    lines = ["%x = xor i32 %b, %c", "%y = and i32 %a, %x", "%r = xor i32 %y, %c"]
    yield function("bfi by xor", "i32", ("i32",) * 3, lines)


def multiply_adds() -> Text:
    for type_ in ("i16", "i32", "i64", "<2 x i16>"):
        yield function(f"mad {type_}", type_, (type_,) * 3, [f"%p = mul {type_} %a, %b", f"%r = add {type_} %p, %c"])
    for op, name in (("zext", "u24"), ("sext", "i24")):
        wide = [f"%x = {op} i24 %a to i32", f"%y = {op} i24 %b to i32"]
        yield function(f"mul {name}", "i32", ("i24", "i24"), [*wide, "%r = mul i32 %x, %y"])
        yield function(f"mad {name}", "i32", ("i24", "i24", "i32"), [*wide, "%p = mul i32 %x, %y", "%r = add i32 %p, %c"])
        lines = [f"%x = {op} i32 %a to i64", f"%y = {op} i32 %b to i64", "%r = mul i64 %x, %y"]
        yield function(f"mul {op} i32 to i64", "i64", ("i32", "i32"), lines)
        yield function(
            f"mul high {op} i32",
            "i32",
            ("i32", "i32"),
            [*lines[:2], "%p = mul i64 %x, %y", "%h = lshr i64 %p, 32", "%r = trunc i64 %h to i32"],
        )
        lines = [*lines[:2], "%p = mul i64 %x, %y", "%r = add i64 %p, %c"]
        yield function(f"mad {op} i32 to i64", "i64", ("i32", "i32", "i64"), lines)


def bytes_and_pairs() -> Text:
    """Yields bytes of two registers put together: v_perm_b32, v_alignbit_b32."""
    for by in (1, 8, 16, 24):
        lines = [f"%x = lshr i32 %b, {by}", f"%y = shl i32 %a, {32 - by}", "%r = or i32 %x, %y"]
        yield function(f"alignbit {by}", "i32", ("i32", "i32"), lines)
    for kept in (0xFF00FF00, 0x0000FFFF, 0x00FFFF00):
        lines = [f"%x = and i32 %a, {kept}", f"%y = and i32 %b, {kept ^ 0xFFFFFFFF}", "%r = or i32 %x, %y"]
        yield function(f"perm {kept:#x}", "i32", ("i32", "i32"), lines)
    vectors = ["%x = bitcast i32 %a to <4 x i8>", "%y = bitcast i32 %b to <4 x i8>"]
    for order in ((3, 2, 1, 0), (0, 5, 2, 7), (4, 0, 4, 1)):
        mask = ", ".join(f"i32 {each}" for each in order)
        lines = [*vectors, f"%z = shufflevector <4 x i8> %x, <4 x i8> %y, <4 x i32> <{mask}>", "%r = bitcast <4 x i8> %z to i32"]
        yield function(f"shuffle bytes {order}", "i32", ("i32", "i32"), lines)


def elements() -> Text:
    for type_, count in (("i8", 4), ("i16", 2), ("i16", 4), ("i32", 2), ("i32", 4), ("i64", 2), ("i1", 4)):
        vector = f"<{count} x {type_}>"
        lines = [f"%v0 = insertelement {vector} poison, {type_} %a, i32 0"]
        lines += [
            f"%v{at} = insertelement {vector} %v{at - 1}, {type_} %{letter}, i32 {at}"
            for at, letter in enumerate("bcd"[: count - 1], 1)
        ]
        lines[-1] = lines[-1].replace(f"%v{count - 1} =", "%r =")
        yield function(f"build {vector}", vector, (type_,) * count, lines)
        for index, more in (("1", []), ("%b", ["i32"])):
            yield function(
                f"extractelement {vector} {index}", type_, [vector, *more], [f"%r = extractelement {vector} %a, i32 {index}"]
            )
            other = index.replace("%b", "%c")
            line = f"%r = insertelement {vector} %a, {type_} %b, i32 {other}"
            yield function(f"insertelement {vector} {index}", vector, [vector, type_, *more], [line])
        mask = ", ".join(f"i32 {at}" for at in reversed(range(count)))
        line = f"%r = shufflevector {vector} %a, {vector} poison, <{count} x i32> <{mask}>"
        yield function(f"reverse {vector}", vector, (vector,), [line])


def accesses() -> Text:
    for type_ in (*WHOLE, "<8 x i16>", "<4 x i32>"):
        for align in (1, 2, 4, 8, 16):
            lines = (
                f"%a = load {type_}, ptr addrspace(1) %p, align {align}",
                f"store {type_} %a, ptr addrspace(1) %q, align {align}",
            )
            body = "\n".join(f"  {line}" for line in (*lines, "ret void"))
            text = f"define void @f(ptr addrspace(1) %p, ptr addrspace(1) %q) {{\n{body}\n}}"
            yield f"load and store {type_} align {align}", text
    for small in ("i1", "i8", "i16", "i24"):
        for op in ("zext", "sext"):
            text = (f"define i32 @f(ptr addrspace(1) %p) {{\n  %a = load {small}, ptr addrspace(1) %p\n"
                    f"  %r = {op} {small} %a to i32\n  ret i32 %r\n}}")  # fmt: skip
            yield f"{op} of a loaded {small}", text


def poison_uses() -> Text:
    """Yields functions whose results may be poison, which compilers use."""
    for flags in ("", " nsw", " nuw"):
        for type_ in ("i8", "i32", "i64"):
            yield function(
                f"add{flags} above {type_}", "i1", (type_,), [f"%s = add{flags} {type_} %a, 1", f"%r = icmp sgt {type_} %s, %a"]
            )
            lines = [f"%s = mul{flags} {type_} %a, 6", f"%r = sdiv {type_} %s, 3"]
            yield function(f"mul{flags} and sdiv {type_}", type_, (type_,), lines)
            lines = [f"%s = shl{flags} {type_} %a, 3", f"%r = ashr {type_} %s, 3"]
            yield function(f"shl{flags} and ashr {type_}", type_, (type_,), lines)
    yield function("freeze twice", "i32", ("i32",), ["%s = add nsw i32 %a, 1", "%f = freeze i32 %s", "%r = sub i32 %f, %f"])
    yield function("undef", "i32", ("i32",), ["%r = and i32 %a, undef"])
    yield function("frozen undef", "i32", ("i32",), ["%u = freeze i32 undef", "%r = xor i32 %u, %u"])
    yield function("disjoint or", "i32", ("i32", "i32"), ["%r = or disjoint i32 %a, %b"])
    yield function("samesign", "i1", ("i32", "i32"), ["%r = icmp samesign ult i32 %a, %b"])


def each_of(make: Callable[..., Text], names: Sequence[str], *rest: object, extra: Sequence[str] = ("",)) -> Text:
    """Yields the functions of several operations, and of each operand that comes last."""
    for name in names:
        for last in extra:
            yield from make(name, *rest, **({"extra": last} if last else {}))


LAST_BIT = (", i1 false", ", i1 true")
LIMITED = ("uadd.sat", "usub.sat", "sadd.sat", "ssub.sat", "ushl.sat", "sshl.sat")
SUBJECTS: dict[str, Callable[[], Text]] = {
    "add": lambda: binaries("add"), "sub": lambda: binaries("sub"), "mul": lambda: binaries("mul"), "mad": multiply_adds,
    "logic": lambda: each_of(binaries, ("and", "or", "xor")),
    "shl": lambda: shifts("shl"), "lshr": lambda: shifts("lshr"), "ashr": lambda: shifts("ashr"),
    "bfe": in_registers, "bytes": bytes_and_pairs, "bitreverse": lambda: calls("bitreverse", 1),
    "bswap": lambda: calls("bswap", 1, ("i16", "i32", "i48", "i64", "i128", "<2 x i16>")),
    "ctpop": lambda: calls("ctpop", 1), "ctlz": lambda: each_of(calls, ("ctlz",), 1, extra=LAST_BIT),
    "cttz": lambda: each_of(calls, ("cttz",), 1, extra=LAST_BIT), "abs": lambda: each_of(calls, ("abs",), 1, extra=LAST_BIT),
    "funnel": lambda: each_of(calls, ("fshl", "fshr"), 3),
    "udiv": lambda: divisions("udiv"), "sdiv": lambda: divisions("sdiv"),
    "urem": lambda: divisions("urem"), "srem": lambda: divisions("srem"),
    "overflow": overflows, "saturation": lambda: each_of(calls, LIMITED, 2),
    "order": lambda: each_of(calls, ("umin", "umax", "smin", "smax"), 2),
    "compare": comparisons, "cast": casts, "element": elements, "memory": accesses, "poison": poison_uses,
}  # fmt: skip


def judge(text: str, target: str, options: Sequence[str], limits: Limits) -> Verdict:
    """Returns the verdict on a function. Raises UsageError if clang rejects it."""
    module = read_ir(text)
    (one,) = functions_of(module, "f.ll", None)
    return refinement(compile_function(module, one, "f.ll", target, options), limits)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simgpu.tools.robustness.ir_functions", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--target", default="gfx942")
    parser.add_argument("--options", default="-O2", help="of clang, as --options='-O1 -mllvm -global-isel' (-O2)")
    parser.add_argument("--only", help="a subject: " + ", ".join(SUBJECTS))
    parser.add_argument("--effort", type=float, default=3.0, help="for each function (3)")
    parser.add_argument("--every", type=int, default=1, help="one function of so many (1)")
    parser.add_argument("--log", type=Path, help="write a line for each function that is not proved")
    options = parser.parse_args(argv)
    total: collections.Counter[str] = collections.Counter()
    begun = time.monotonic()
    for subject in [options.only] if options.only else SUBJECTS:
        tally: collections.Counter[str] = collections.Counter()
        for name, text in list(SUBJECTS[subject]())[:: options.every]:
            try:
                verdict = judge(
                    text, options.target, shlex.split(options.options), Limits(options.effort, seconds=10 * options.effort)
                )
            except UsageError as error:
                verdict = Verdict("unknown", f"clang: {error}")
            tally[outcome(verdict)] += 1
            line = f"{name}: {outcome(verdict)} in {verdict.seconds:.1f} s{verdict.reason and ': '}{verdict.reason}"
            if options.log and verdict.kind != "equal":
                with options.log.open("a") as file:
                    file.write(line + "\n")
            if verdict.kind == "different":
                print(line, verdict.counterexample, text, sep="\n", flush=True)
        total += tally
        print(f"{subject}: {_counts(tally)}", flush=True)
    print(f"{options.target} {options.options}: {_counts(total)}; {time.monotonic() - begun:.0f} s")
    return 1 if total["different"] else 0


def _counts(tally: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(tally.items()))


if __name__ == "__main__":
    sys.exit(main())
