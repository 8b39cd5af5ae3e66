"""Runs random kernels in every mode that must not change what they compute, and compares the bytes that they leave.

    python -m simgpu.tools.robustness.modes --count 500 --seed 1 [--kind streams ...]
    python -m simgpu.tools.robustness.modes --kind streams --seed 1 --first 42 --count 1     # one kernel again

streams: one wave of random instructions, whose launch may fail
programs: random LLVM IR, compiled for four waves
operators: GEMM, convolution, softmax and attention of random shapes, on several workgroups

Each kernel runs plain, on one thread, checked, with numerics, and by the debugger to its last instruction. Operators run in slices
instead of the debugger. Programs and operators also run in weak mode, in late mode and with their waves in another order, by a seed
that is the kernel's number: they have their waits and no races. A launch that fails must fail with the same error at the same
instruction in each mode, except that only checks end it at a load that reads outside LDS. The debugger has arguments and
private memory elsewhere, so it runs no kernel that names FLAT_SCRATCH, and a stream that stores another such address differs in
`replayed` alone. The exit status is 1 if a kernel differed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import simgpu
from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa.code.text import text
from simgpu.tools.cases.subject import subject
from simgpu.tools.robustness import ir_runs
from simgpu.tools.robustness.flips import lines
from simgpu.tools.robustness.fuzz import INSTRUCTIONS
from simgpu.tools.robustness.fuzz_cases import BUFFER_BYTES, contents, stream_object
from simgpu.tools.robustness.ir_programs import LANES, program

DEVICES: dict[str, dict[str, Any]] = {
    "plain": {}, "one thread": {"threads": 1}, "checked": {"check": True}, "numerics": {"check": "numerics"},
}  # fmt: skip
SEEDED = ("weak", "late", "schedule")
SLICES = 3
LDS_FAULT, OUTSIDE_LDS = "bytes of the workgroup", "outside LDS"  # in an error's message, and how an ending says it


@dataclass(frozen=True)
class ReadyLaunch:
    """A kernel on a device of its own, its launch, and the memory to compare after it."""

    kernel: Any
    call: dict[str, Any]
    buffers: Sequence[Any]

    def end_digest(self, act: Callable[[], object]) -> str:
        """Returns a digest of memory after an action, with the error that ended it."""
        try:
            act()
            said = ""
        except SimError as error:
            said = f"{type(error).__name__} {str(error).partition(':')[0]}" + f" {OUTSIDE_LDS}" * (LDS_FAULT in str(error))
        made = hashlib.sha256()
        for buffer in self.buffers:
            made.update(buffer.download(np.uint8).tobytes())
        return f"{said} {made.hexdigest()[:16]}".strip()

    def launch(self) -> str:
        return self.end_digest(lambda: self.kernel.launch(**self.call))

    def replay(self) -> str:
        """Runs the only workgroup by a debugger that stops on the way.

        It returns only a digest, since a debugger stops where a launch fails.
        """
        with simgpu.debug(self.kernel, **self.call) as debugger:
            debugger.step(7, 0)
            while debugger.stop.kind not in ("ended", "fault"):
                debugger.go_on()
            return self.end_digest(lambda: None)

    def slices(self) -> str:
        with ThreadPoolExecutor(2) as executor:
            return self.end_digest(lambda: self.kernel.launch(**self.call, executor=executor, slices=SLICES))


def stream(seed: int, number: int) -> Callable[[dict[str, Any]], ReadyLaunch]:
    """Makes one wave of random instructions."""
    rng = random.Random(f"modes:{seed}:{number}")
    target = rng.choice(TARGETS)
    code = stream_object(rng, target)

    def ready(options: dict[str, Any]) -> ReadyLaunch:
        gpu = simgpu.Device(target, max_instructions=INSTRUCTIONS, **options)
        buffer = gpu.alloc(BUFFER_BYTES)
        words = contents(random.Random(f"contents:{seed}:{number}"), buffer.address)
        buffer.write(np.array(words, np.uint32))
        return ReadyLaunch(gpu.load(code)["fuzz"], {"grid": 1, "block": 64, "args": [buffer, 5, 1.5]}, [buffer])

    return ready


def compile_random(seed: int, number: int) -> Callable[[dict[str, Any]], ReadyLaunch]:
    """Compiles a random program of LLVM IR. Raises `Rejected` if clang rejects it."""
    rng = random.Random(f"modes:{seed}:{number}")
    one, target = program(seed, number), rng.choice(TARGETS)
    code = ir_runs.code_object([one], ir_runs.Setting(target, rng.choice(("-O0", "-O1", "-O2", "-O3")), False))
    before = ir_runs.memory(seed, number)

    def ready(options: dict[str, Any]) -> ReadyLaunch:
        gpu = simgpu.Device(target, **options)
        buffers = [gpu.upload(data) for data in (before.given, before.out, before.atom)]
        call = {"grid": 1, "block": LANES, "args": [*buffers, ir_runs.SCALAR]}
        return ReadyLaunch(gpu.load(code)[f"p{number}"], call, buffers)

    return ready


def operator(seed: int, number: int) -> Callable[[dict[str, Any]], ReadyLaunch]:
    """Makes the last kernel of an operator of a random shape, often on several workgroups."""
    rng = random.Random(f"modes:{seed}:{number}")
    small = rng.choice(list(itertools.islice(lines(rng.randrange(1 << 30)), 4)))
    what, *rest = (small if rng.random() < 0.4 else _wide(rng)).split()
    asked = subject("why", what, rest, last=True)
    module = asked.kernel.module
    before = [(argument, argument.download(np.uint8)) for argument in asked.call["args"] if isinstance(argument, simgpu.Buffer)]

    def ready(options: dict[str, Any]) -> ReadyLaunch:
        gpu = simgpu.Device(module.device.arch, **options)
        buffers = {id(old): gpu.upload(data) for old, data in before}
        args = [buffers.get(id(argument), argument) for argument in asked.call["args"]]
        return ReadyLaunch(gpu.load(module.code.data)[asked.kernel.name], {**asked.call, "args": args}, list(buffers.values()))

    return ready


def _wide(rng: random.Random) -> str:
    """Draws a command line of an operator on several workgroups."""
    dtype = rng.choice(("--target mi100", "--target mi210 --dtype bf16", "--target mi300x --dtype f16", "--target mi355x"))
    return rng.choice((
        f"gemm -m {rng.randrange(60, 300)} -n {rng.randrange(60, 300)} -k {rng.randrange(1, 80)} {dtype}",
        f"softmax --rows {rng.randrange(20, 200)} -n {rng.randrange(1, 900)} {dtype}",
        f"attention -L {rng.randrange(60, 200)} -d {rng.choice((16, 32, 64))} {rng.choice(('', '--causal'))} {dtype}",
    ))  # fmt: skip


KINDS = {"streams": stream, "programs": compile_random, "operators": operator}


def endings(kind: str, seed: int, number: int) -> dict[str, str]:
    """Returns the end of a kernel's launch in each mode."""
    ready = KINDS[kind](seed, number)
    launches = {name: ready(options) for name, options in DEVICES.items()}
    found = {name: one.launch() for name, one in launches.items()}
    if kind != "streams":
        found |= {name: ready({name: number}).launch() for name in SEEDED}
    if kind == "operators":
        found["sliced"] = ready({"threads": 1}).slices()
    elif not _names_flat_scratch(launches["plain"]):
        found["replayed"] = ready({"threads": 1}).replay()
    return found


def _names_flat_scratch(launched: ReadyLaunch) -> bool:
    """True if an instruction of the launched kernel names FLAT_SCRATCH, whose address it may store."""
    programs = launched.kernel.module.programs
    return any("flat_scratch" in text(inst) for program in programs for inst in program.instructions.values())


def modes_agree(found: dict[str, str]) -> bool:
    """True if every mode ended as plain mode did, or by a load outside LDS; for the debugger only the bytes are compared."""
    plain = found["plain"]

    def agrees(mode: str, ending: str) -> bool:
        return ending == (plain.split()[-1] if mode == "replayed" else plain) or (mode == "checked" and OUTSIDE_LDS in ending)

    return all(agrees(mode, ending) for mode, ending in found.items())


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.modes", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--count", type=int, default=100, help="kernels of each kind (100)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--first", type=int, default=0, help="number of the first kernel (0)")
    made.add_argument("--kind", choices=tuple(KINDS), action="append", help="only this kind; may be repeated")
    options = made.parse_args(argv)
    begun, differing = time.monotonic(), 0
    for kind in options.kind or KINDS:
        counts: Counter[str] = Counter()
        for number in range(options.first, options.first + options.count):
            try:
                found = endings(kind, options.seed, number)
            except ir_runs.ProgramRejected:
                counts["rejected by clang"] += 1
                continue
            counts["failed alike" if " " in found["plain"] else "ran"] += 1
            if not modes_agree(found):
                differing += 1
                print(f"{kind} {number}: " + "; ".join(f"{name}: {ending}" for name, ending in found.items()), flush=True)
        print(f"{kind}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
    print(f"{time.monotonic() - begun:.0f} s, {differing} kernels differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
