"""Compares the inputs that `why` names with flips of input bits; and reverse execution with forward execution.

    python -m simgpu.tools.robustness.flips --elements 500            # of the four operators, at random shapes
    python -m simgpu.tools.robustness.flips --places 1000 --corpus FOLDER   # random places of 20 kernels, backward and forward

Every input element whose flipped bits change an element of the result must be among those that `why` names for it. Elements
that `why` names but no flip shows are only counted, since rounding hides small terms.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import simgpu
from simgpu.debugger.debugger import Debugger
from simgpu.debugger.flow.nodes import leaves
from simgpu.debugger.flow.why import Why
from simgpu.debugger.place import WavePlace
from simgpu.machine import layout
from simgpu.tools.cases.subject import Subject, subject
from simgpu.tools.debug.questions import group_of
from simgpu.tools.robustness.corpus import cases
from simgpu.tools.shared.console import show

FLIPS = {2: (b"\x35\x01", b"\x00\x40"), 4: (b"\x35\x12\x31\x01", b"\x00\x00\x00\x40")}  # by bytes of an element
MORE = {2: (b"\x00\x80", b"\x00\x3c", b"\xff\x03"), 4: (b"\x00\x00\x00\x80", b"\x00\x00\x80\x3f", b"\xff\xff\x7f\x00")}
KERNELS = 20


class BitFlips:
    """A launch's result with bits of one input element changed at a time. Memory is restored after each change."""

    def __init__(self, asked: Subject) -> None:
        assert asked.names and asked.result
        self.asked, self.names, self.result = asked, asked.names, asked.result
        self.memory = asked.kernel.module.device.memory
        out = self.memory.find(self.names[self.result].address)
        assert out is not None
        self._out = out
        self._before = [(one, one.data.copy()) for one in self.memory.allocations if one.tracked]
        self._usual = self._launch()

    def _launch(self) -> np.ndarray:
        self.asked.kernel.launch(**self.asked.call)
        after = self._out.data.copy()
        for one, data in self._before:
            one.data[:] = data
        return after

    def changes(self, name: str, index: Sequence[int], patterns: Mapping[int, tuple[bytes, ...]]) -> set[int]:
        """Returns addresses of the result's bytes that change with bits of an input element."""
        array = self.names[name]
        address, size = array.element(index), array.dtype.itemsize
        held = self.memory.find(address)
        assert held is not None
        found: set[int] = set()
        for bits in patterns[size]:
            held.data[address - held.base :][:size] ^= np.frombuffer(bits, np.uint8)
            found |= set((np.flatnonzero(self._launch() != self._usual) + self._out.base).tolist())
        return found

    def all(self) -> dict[str, set[int]]:
        """Returns the changed addresses for every input element, by name."""
        return {
            text_of(name, index): self.changes(name, index, FLIPS)
            for name, array in self.names.items() if name != self.result for index in np.ndindex(*array.shape)
        }  # fmt: skip


def text_of(name: str, index: Sequence[int]) -> str:
    """Formats an element as a user types it."""
    return f"{name}[{','.join(map(str, index))}]"


def element_of(text: str) -> tuple[str, list[int]]:
    """Parses an element into its array's name and index."""
    name, _, index = text.rstrip("]").partition("[")
    return name, [int(part) for part in index.split(",")]


def compare(line: str, count: int, seed: int) -> tuple[int, list[str], list[str]]:
    """Compares one operator's `why` with flips.

    It returns the number of elements, inputs that `why` left out, and inputs that it names but no flip shows.
    """
    what, *rest = line.split()
    asked = subject("why", what, [*rest, "--threads", "1"], last=True)
    flipped = BitFlips(asked)
    changes = flipped.all()
    array = flipped.names[flipped.result]
    elements = list(np.ndindex(*array.shape))
    wanted: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
    for index in random.Random(seed).sample(elements, min(count, len(elements))):
        wanted.setdefault(group_of(asked, array.element(index)), []).append(index)
    missing: list[str] = []
    extra: list[str] = []
    for group, indices in wanted.items():
        with asked.debugger(group) as debugger:
            why = Why(debugger)
            for index in indices:
                address = array.element(index)
                mine = set(range(address, address + array.dtype.itemsize))
                ends = leaves(why.memory(address, array.dtype.itemsize))
                named = {leaf.text.split(" byte ")[0] for leaf in ends if leaf.kind == "memory"}
                changing = {text for text, touched in changes.items() if touched & mine}
                missing += [f"{text_of(flipped.result, index)} <- {text}" for text in changing - named]
                extra += [f"{text_of(flipped.result, index)} <- {text}" for text in named - changing]
    lost = []
    for pair in extra:
        (_, to), (name, of) = map(element_of, pair.split(" <- "))
        address = array.element(to)
        if name in flipped.names and flipped.changes(name, of, MORE).isdisjoint(range(address, address + array.dtype.itemsize)):
            lost.append(pair)
    return sum(map(len, wanted.values())), missing, lost


def lines(seed: int) -> Iterable[str]:
    """Yields the four operators at random small shapes, types and targets."""
    rng = random.Random(seed)
    while True:
        dtype = rng.choice(("--target mi100", "--target mi300x --dtype f16", "--target mi300x"))
        yield f"gemm -m {rng.randrange(3, 12)} -n {rng.randrange(3, 12)} -k {rng.randrange(2, 24)} {dtype}"
        image = f"--ic {rng.randrange(1, 4)} --ih {rng.randrange(3, 6)} --iw {rng.randrange(3, 6)}"
        kernel = f"--oc {rng.randrange(1, 4)} --kh {rng.randrange(1, 3)} --kw {rng.randrange(1, 3)}"
        yield f"conv2d {image} {kernel} --target {rng.choice(('mi100', 'mi300x'))}"
        yield f"softmax --rows {rng.randrange(2, 5)} -n {rng.randrange(9, 40)} --target {rng.choice(('mi100', 'mi300x'))}"
        yield f"attention -L {rng.randrange(2, 5)} -d 16 --target mi300x {rng.choice(('', '--dtype f16'))}"


# -- backward and forward ---------------------------------------------------------------------------


def digest(debugger: Debugger, device: simgpu.Device) -> str:
    """Returns a digest of a debugger's state: all waves' registers and places, LDS, and the user's memory."""
    replay, made = debugger.replay, hashlib.sha256()
    for wave in range(debugger.waves):
        held = replay.bytes_of(wave)
        made.update(held[: layout.MODE + 4].tobytes() + held[layout.VGPR : layout.WAVE_BYTES].tobytes())
        made.update(str(replay.place(wave)).encode())
    made.update(replay.lds().tobytes())
    for allocation in device.memory.allocations:
        if allocation.writable and allocation.tracked:  # skips the heap, which is a GB
            made.update(allocation.data.tobytes())
    return made.hexdigest()


def digests_forward(debugger: Debugger, device: simgpu.Device, wave: int, places: Iterable[int]) -> dict[int, str]:
    """Returns digests by the wave's retired count: one walk from its place to the last of `places`, with a stop at each."""
    found = {}
    for retired in sorted(set(places)):
        away = retired - debugger.wave_place(wave).retired
        if away:
            debugger.step(away, wave)
        found[retired] = digest(debugger, device)
    return found


def reversed_places(debugger: Debugger, gpu: simgpu.Device, seed: int, count: int) -> list[WavePlace]:
    """Returns random places of a random wave whose state, reached backward, differs from the one on the way forward."""
    rng = random.Random(seed)
    debugger.go_on()
    ends = [debugger.wave_place(wave).retired for wave in range(debugger.waves)]
    wave = rng.randrange(debugger.waves)
    places = [rng.randrange(ends[wave]) for _ in range(count)]
    debugger.goto(WavePlace(debugger.replay.group, wave, 0))
    found, wrong = digests_forward(debugger, gpu, wave, places), []
    for place in places:
        ahead = min(place + rng.randrange(1, 9), ends[wave])
        debugger.goto(WavePlace(debugger.replay.group, wave, ahead))
        debugger.reverse_step(ahead - place, wave)
        if digest(debugger, gpu) != found[place]:
            wrong.append(debugger.place)
    return wrong


def backward(folder: str, kernels: int, places: int, seed: int) -> tuple[int, list[str]]:
    """Checks the same number of places in random kernels of a corpus. Returns their number, and the wrong ones."""
    found, seen, wrong = cases(folder), 0, []
    for number, case in enumerate(random.Random(seed).sample(found, min(kernels, len(found)))):
        gpu = simgpu.Device(case.target, threads=1)
        kernel = gpu.load(case.code)[case.entry]
        given: list[Any] = [a.value if a.data is None else gpu.upload(a.data) for a in case.arguments]
        how: dict[str, Any] = {"block": case.block, "global_size": case.global_size, "dynamic_lds": case.dynamic_lds}
        with simgpu.debug(kernel, args=given, **how) as debugger:
            wrong += [f"{case.name} {place}" for place in reversed_places(debugger, gpu, number, places)]
            seen += places
    return seen, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=0, help="elements of results to ask `why` about")
    parser.add_argument("--places", type=int, default=0, help=f"places in all, of {KERNELS} kernels")
    parser.add_argument("--corpus", metavar="FOLDER", help="of compilers' kernels, with a manifest.json")
    parser.add_argument("--seed", type=int, default=25)
    options = parser.parse_args()
    failed = False
    seen = named = 0
    for number, line in enumerate(lines(options.seed)):
        if seen >= options.elements:
            break
        count, missing, lost = compare(line, min(25, options.elements - seen), number)
        seen, named, failed = seen + count, named + len(lost), failed or bool(missing)
        show(f"{seen} elements; {line}: {len(missing)} left out, {len(lost)} named without a flip that shows them", *missing[:5])
    if options.elements:
        show(f"{seen} elements, {named} inputs named beyond what flips show")
    if options.places:
        if not options.corpus:
            parser.error("--places goes with --corpus FOLDER")
        places, wrong = backward(options.corpus, KERNELS, -(-options.places // KERNELS), options.seed)
        show(f"{places} places, {len(wrong)} where backward is not forward", *wrong)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
