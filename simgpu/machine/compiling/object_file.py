"""Compiles a module's IR to an object file.

It imports only llvmlite, so that it is also a program that starts in 0.1 s; `helpers.py` runs it by its path. It reads
sources from its standard input and writes object files to its standard output until the input ends. LLVM is loaded by the
functions that use it, as most processes find all object files in the cache.
"""

from __future__ import annotations

import queue
import re
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from llvmlite.binding import ModulePassManager, ModuleRef, TargetMachine

# Text of an internal function.
INNER = re.compile(r'^define internal [^\n]*?@"([^"]+)".*?^}$', re.MULTILINE | re.DOTALL)
RANGE = "\nrange:"  # label of a function's first loop over a range (`simgpu.machine.runtime.translate`)
BRANCHES = 4  # most branches of a function whose loops LLVM may vectorise


class ModuleSource(NamedTuple):
    """A module's IR.

    loops: True for translated Python, which has loops, and calls to inline. It gets some passes, which take a third of the time
    of LLVM's default ones and vectorise only inner functions that are worth it (`with_vectors`). Handlers, whose vectors are
    explicit, need fewer passes (docs/explanation/engine.md).
    """

    text: str
    loops: bool = False


def machine(triple: str, cpu: str, features: str) -> TargetMachine:
    """Returns the code generator for a host."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=2, jit=True, codemodel="jitdefault")


def object_code(machine: TargetMachine, *sources: ModuleSource) -> bytes:
    """Returns one object file of all sources, which all have loops or all have none.

    Raises RuntimeError if LLVM rejects a text.
    """
    import llvmlite.binding as llvm

    parsed = with_vectors(machine, sources[0].text) if sources[0].loops else llvm.parse_assembly(sources[0].text)
    for source in sources[1:]:
        parsed.link_in(llvm.parse_assembly(source.text))
    _passes(sources[0].loops).run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(parsed))


def object_codes(machine: TargetMachine, sources: Sequence[ModuleSource]) -> list[bytes | str]:
    """Returns for each source an object file with its function, or LLVM's error message.

    All share one file, unless LLVM rejects one of them: beginning a file takes as long as compiling a small function.
    """
    try:
        return [object_code(machine, *sources)] * len(sources)
    except RuntimeError as error:
        if len(sources) == 1:
            return [str(error)]
        return [code for source in sources for code in object_codes(machine, [source])]


def with_vectors(machine: TargetMachine, text: str) -> ModuleRef:
    """Runs LLVM's vectorising passes on loops over bytes and words of arrays; returns the module.

    These loops are in inner functions that go over a range with few branches, call no other function and are called
    often. With these passes on the whole module, LLVM would take more than twice as long.
    """
    import llvmlite.binding as llvm

    inner = {found[1]: found[0] for found in INNER.finditer(text)}
    called = re.compile("|".join(map(re.escape, inner)) or "$^")
    plain = {name: code for name, code in inner.items() if RANGE in code and "optsize" not in code}
    leaves = {name: code for name, code in plain.items() if len(called.findall(code)) == 1 and code.count("br i1") <= BRANCHES}
    rest, head = text, text[: text.find("\ndefine")]
    for code in leaves.values():
        rest = rest.replace(code, "declare" + code[: code.index("\n")].removeprefix("define internal"))
    declared = "\n".join(line for line in text.splitlines() if line.startswith("declare"))
    vectors = llvm.parse_assembly("\n".join((head, declared, *(code.replace("internal ", "", 1) for code in leaves.values()))))
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(vectors, builder)
    parsed = llvm.parse_assembly(rest)
    parsed.link_in(vectors)
    for name in leaves:
        parsed.get_function(name).linkage = "internal"
    return parsed


def _passes(loops: bool) -> ModulePassManager:
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    if loops:
        passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    if loops:
        passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    if loops:
        passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    if loops:
        passes.add_instruction_combine_pass()
    return passes


# -- protocol between processes: a length, a flag, and bytes
# --------------------------------------------------------------------
#
# A request is sources, each with a flag that says if it has loops, then an empty source. Its answer is an object file
# for each, or LLVM's error message if the flag is not set.

HEAD = struct.Struct("<Q?")


def write(stream: BinaryIO, flag: bool, content: bytes) -> None:
    stream.write(HEAD.pack(len(content), flag) + content)
    stream.flush()


def read(stream: BinaryIO) -> tuple[bool, bytes] | None:
    """Reads what `write` wrote; None if the stream ended."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, flag = HEAD.unpack(head)
    content = stream.read(size)
    return (flag, content) if len(content) == size else None


def request(stream: BinaryIO, sources: Sequence[ModuleSource]) -> None:
    """Writes a request."""
    for source in (*sources, ModuleSource("")):
        write(stream, source.loops, source.text.encode())


def _read_all(requests: queue.SimpleQueue[list[ModuleSource] | None]) -> None:
    sources: list[ModuleSource] = []
    while (part := read(sys.stdin.buffer)) is not None:
        if part[1]:
            sources.append(ModuleSource(part[1].decode(), part[0]))
        else:
            requests.put(sources)
            sources = []
    requests.put(None)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process answers Ctrl-C, and ends this one
    triple, cpu, features = sys.argv[1:]
    made = machine(triple, cpu, features)
    # A thread reads, so that the parent can write the next source while this process writes an answer.
    requests: queue.SimpleQueue[list[ModuleSource] | None] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=[requests], daemon=True).start()
    while (sources := requests.get()) is not None:
        for code in object_codes(made, sources):
            write(sys.stdout.buffer, isinstance(code, bytes), code if isinstance(code, bytes) else code.encode())


if __name__ == "__main__":
    main()
