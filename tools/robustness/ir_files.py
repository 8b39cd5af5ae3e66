"""Functions of a folder of LLVM IR, such as LLVM's own tests, each as a file of its own with the target of its RUN line."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from simgpu.proof.equal import Verdict
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.wrap import closing
from simgpu.proof.solver import Limits
from simgpu.tools.cases.ir import printed_ir
from simgpu.tools.cases.refinement import compile_function, refinement
from simgpu.tools.shared.errors import UsageError

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
# As llc does it: code generation without the passes on IR, which would compute most tests at compile time. Atomic operations of a
# wave stay apart, as the proof compares each.
CODE_GENERATION = ("-Xclang", "-disable-llvm-passes", "-mllvm", "-amdgpu-atomic-optimizer-strategy=None")
DEFINED = re.compile(r'^define [^\n]*?(@(?:"[^"]*"|[-\w$.]+))\(.*?^}\n', re.MULTILINE | re.DOTALL)
NAMES = re.compile(r'@(?:"[^"]*"|[-\w$.]+)')

# Inline assembly in tests: a comment that defines a value, or uses one.
CALL = r'(?:tail )?call %s asm (?:sideeffect )?"; *[^"$]*\$0[^"$]*", '
MADE = re.compile(r"^( *)(%[-\w$.]+) = " + CALL % "(.+?)" + r'"=[^",]+"\(\)[^\n]*$', re.MULTILINE)
USED = re.compile(r"^( *)" + CALL % "void" + r'"[^",]+"\(([^\n]*)\)[^()\n]*$', re.MULTILINE)
ID = "@llvm.amdgcn.workitem.id.x"
STRIDE = 256  # bytes for each value


@dataclass(frozen=True)
class IrFile:
    """A file's text without comments. target: of a RUN line, if it is one of `TARGETS`."""

    path: Path
    text: str
    target: str
    options: tuple[str, ...]

    @cached_property
    def functions(self) -> dict[str, str]:
        """Texts of the functions that the file defines, by name."""
        return {found[1]: found[0] for found in DEFINED.finditer(self.text)}

    def only(self, name: str) -> str:
        """Returns the file with a function and those that it needs; of the function, assembly that is a comment becomes memory."""
        left, needed = [name], {name}
        while left:
            for other in NAMES.findall(self.functions[left.pop()]):
                if other in self.functions and other not in needed:
                    needed.add(other)
                    left.append(other)
        first = with_memory(self.functions[name])
        needed.remove(name)
        rest = DEFINED.sub(lambda found: hide(found[0]) if found[1] in needed else "", self.text)
        declared = f"\ndeclare i32 {ID}()\n" if ID in first and f" {ID}(" not in rest else ""
        return rest + declared + first


def hide(function: str) -> str:
    """Returns a function that is called without the global offset table."""
    stated = re.match(r"define (private|internal|hidden|protected|\w*odr|dso_local|weak|linkonce)\b", function)
    return function if stated else function.replace("define ", "define hidden ", 1)


def with_memory(function: str) -> str:
    """Returns a function whose comments in assembly are loads and stores of further arguments.

    >>> print(with_memory('define void @f() {\\n  %a = call i8 asm "; def $0", "=s"()\\n  ret void\\n}'))
    define void @f(ptr addrspace(4) align 256 %asm.s) {
      %asm.p1 = getelementptr i8, ptr addrspace(4) %asm.s, i64 256
      %a = load i8, ptr addrspace(4) %asm.p1, align 16
      ret void
    }
    """
    count = 0
    taken: dict[str, str] = {}

    def place(pointer: str, space: int, type_: str) -> list[str]:
        nonlocal count
        count += 1
        taken[pointer] = f"ptr addrspace({space}) align {STRIDE} {pointer}"
        lines, base = [], pointer
        if space == 1:
            base = f"%asm.b{count}"
            lines = [f"%asm.l{count} = call i32 {ID}()",
                     f"{base} = getelementptr [64 x [{STRIDE} x i8]], ptr addrspace(1) {pointer}, i32 %asm.l{count}"]  # fmt: skip
        return [*lines, f"%asm.p{count} = getelementptr i8, ptr addrspace({space}) {base}, i64 {STRIDE * count}"]

    def load(found: re.Match[str]) -> str:
        space, pointer = (4, "%asm.s") if '"=s"' in found[0] or '"={s' in found[0] else (1, "%asm.v")
        lines = place(pointer, space, found[3])
        lines.append(f"{found[2]} = load {found[3]}, ptr addrspace({space}) %asm.p{count}, align 16")
        return "\n".join(found[1] + line for line in lines)

    def store(found: re.Match[str]) -> str:
        lines = place("%asm.out", 1, "")
        return "\n".join(found[1] + line for line in (*lines, f"store {found[2]}, ptr addrspace(1) %asm.p{count}, align 16"))

    made = USED.sub(store, MADE.sub(load, function))
    if not taken:
        return function
    end = closing(made)
    before = made[: end - 1]
    return f"{before}{'' if before.endswith('(') else ', '}{', '.join(taken.values())}{made[end - 1 :]}"


def read_file(path: Path, target: str) -> IrFile | None:
    """Reads a file; None if its RUN lines expect errors. target: if no RUN line has one of `TARGETS`."""
    text = path.read_text("utf-8", "replace")
    runs = re.findall(r"^; *RUN:(.*)$", re.sub(r"\\\n; *RUN:", "", text), re.MULTILINE)
    if any(re.match(r"\s*not\b", run) for run in runs):
        return None
    run = next((run for run in runs if re.search(rf"-mcpu=({'|'.join(TARGETS)})\b", run)), "")
    found = re.search(r"-mcpu=(\w+)", run)
    level = re.search(r"-O([0-3])\b", run)
    options = [f"-O{level[1] if level else 2}", *CODE_GENERATION]
    if re.search(r"-global-isel(=1|=true)?(?![-=\w])", run):
        options += ["-mllvm", "-global-isel"]
    plain = re.sub(r"^[ \t]*;[^\n]*\n", "", text, flags=re.MULTILINE)
    return IrFile(path, plain, found[1] if found else target, tuple(options))


def draw_functions(folder: Path, target: str, seed: int, first: int, count: int) -> Iterator[tuple[IrFile, str]]:
    """Yields functions of a folder's files in an order that a seed draws: one of each file, then a second of each, and so on.

    Raises UsageError if there are none.
    """
    files = [file for path in sorted(folder.rglob("*.ll")) if (file := read_file(path, target)) is not None]
    rng = random.Random(seed)
    by_file = [rng.sample(list(file.functions), len(file.functions)) for file in files]
    rng.shuffle(order := [at for at, names in enumerate(by_file) if names])
    if not order:
        raise UsageError(f"{folder}: no .ll file in it defines a function")
    functions = [(files[at], row[at]) for row in zip_longest(*by_file) for at in order if row[at] is not None]
    yield from functions[first : first + count]


def judge_function(file: IrFile, name: str, limits: Limits, options: Sequence[str] = ()) -> Verdict:
    """Returns the verdict on a function's machine code. options: of clang, instead of those of the RUN line."""
    printed, log = printed_ir(file.only(name).encode(), file.path.name)
    if printed is None:
        return Verdict("unknown", f"clang: {log.strip().partition(chr(10))[0]}")
    module = read_ir(printed)
    made = compile_function(module, module.function(name[1:].strip('"')), str(file.path), file.target, options or file.options)
    return refinement(made, limits)
