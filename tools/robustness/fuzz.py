"""Throws damaged code objects and random instructions at the simulator: each must run or end in an error message.

`python -m simgpu.tools.robustness.fuzz --count 1000 --seed 1 --cluster local:2` runs that many cases of each kind:

* objects: a code object (given by `--objects`, or assembled here) with bytes flipped, overwritten,
  moved or cut off, in its headers, metadata, descriptors, symbols or code;
* streams: random dwords and random but valid encodings as the body of a valid kernel;
* host_calls: the buffer through which a kernel calls the host, with damaged links, messages and formats of printf;
* bundle, compressed, tables, debug, metadata: small code objects that cost much time or memory (`hostile.py`);
* cache: damaged files of the cache, which must be detected and replaced;
* arrays: .npy files with false headers;
* captures, pages, texts, programs, messages: damaged files and messages that users name (`fuzz_files.py`).

A worker process with a cap on its memory loads the first two and launches each kernel on small buffers with a small budget of
instructions; it reads the others. A finished run and a SimError are fine. Another exception, an instruction that cannot be
lowered for an internal reason, a crash or a hang is a failure, printed with the command that repeats it. The exit status is 1 if
there was one. A case depends only on its kind, the seed and its number.
On a cluster, too, cases run in a process of their own, so that none of them ends a worker. The other machines must find the files
of --objects.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import random
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from simgpu.hardware.errors import SimError
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.processes import environment

KINDS = (
    "objects", "streams", "host_calls", "bundle", "compressed", "tables", "debug", "metadata", "cache", "arrays",
    "captures", "pages", "texts", "programs", "messages",
)  # fmt: skip
LAUNCHED = KINDS[:2]
MEMORY_CAP = 2 << 30
READING_CAP = 1 << 30  # memory that a case of the reading kinds may add
# A case runs in milliseconds; in a second or two if all of its handlers are new.
CASE_SECONDS = 60
READING_SECONDS = 10
# Handlers stay loaded in a process, so a fuzzing process is replaced before they fill its memory.
CASES_PER_WORKER = 1000
CASES_PER_TASK = 250  # for a cluster's worker
WORKER_RESIDENT = 1 << 30
INSTRUCTIONS = 20_000
CRASHED, HUNG, RAISED = "crash", "hang", "exception"


@dataclass(frozen=True)
class FuzzCase:
    """An input, made from kind, seed and number only, whatever ran before."""

    kind: str
    seed: int
    number: int

    @property
    def rng(self) -> random.Random:
        return random.Random(f"{self.kind}:{self.seed}:{self.number}")

    def repeat(self, objects: Sequence[str]) -> str:
        """Returns the command that runs only this case, with a traceback."""
        given = f" --objects {' '.join(objects)}" if objects and self.kind == "objects" else ""
        return f"python -m simgpu.tools.robustness.fuzz --kind {self.kind} --seed {self.seed} --only {self.number}{given}"


@dataclass(frozen=True)
class FuzzOutcome:
    """End of a case: `run`, the name of a SimError, or crash, hang, exception with details."""

    name: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.name in (CRASHED, HUNG, RAISED)


def run_case(case: FuzzCase, objects: Sequence[str], strict: bool = False) -> FuzzOutcome:
    """Runs one case in this process; strict lets unexpected exceptions through."""
    from simgpu.tools.robustness import fuzz_cases, fuzz_host_calls

    try:
        if case.kind == "host_calls":
            fuzz_host_calls.run(case.rng)
        else:
            fuzz_cases.run(case.kind, case.rng, tuple(objects), INSTRUCTIONS)
        return FuzzOutcome("run")
    except SimError as error:
        return FuzzOutcome(type(error).__name__, str(error)[:300])
    except Exception as error:
        if strict:
            raise
        return FuzzOutcome(RAISED, _origin(error))


def _origin(error: Exception) -> str:
    """Formats the exception and the innermost places that it came from, in one line."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({places})"


# -- worker process ------------------------------------------------------------------------------


def serve(objects: Sequence[str]) -> None:
    """Reads `kind seed number` lines and answers each with a JSON line, until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_CAP, MEMORY_CAP))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps other output from between the answers
    before = _reserved_bytes()
    for line in sys.stdin:
        kind, seed, number = line.split()
        if kind not in LAUNCHED:
            resource.setrlimit(resource.RLIMIT_AS, (min(before + READING_CAP, MEMORY_CAP), MEMORY_CAP))
        outcome = run_case(FuzzCase(kind, int(seed), int(number)), objects)
        resident = _peak()
        out.write(json.dumps([outcome.name, outcome.detail, resident]) + "\n")


def _peak() -> int:
    """Peak resident bytes of this process; `ru_maxrss` would count its parent's at the fork."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _reserved_bytes() -> int:
    """Bytes of this process's address space, with the modules that cases need."""
    from simgpu.tools.robustness import fuzz_cases, fuzz_host_calls

    assert fuzz_cases and fuzz_host_calls
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class FuzzWorker:
    """A worker process; `ask` runs a case in it, `close` ends it."""

    def __init__(self, objects: Sequence[str]) -> None:
        self.errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 (see `close`)
        # One thread each: BLAS's pools only reserve address space here.
        self.process = subprocess.Popen(
            self.command(objects), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"),
        )  # fmt: skip
        self.cases = 0
        self.resident = 0
        self.case: FuzzCase | None = None
        self.begun = 0.0

    def command(self, objects: Sequence[str]) -> list[str]:
        given = ["--objects", *objects] if objects else []
        return [sys.executable, "-P", "-m", "simgpu.tools.robustness.fuzz", "--serve", *given]

    def ask(self, case: FuzzCase) -> None:
        assert self.process.stdin is not None
        self.case, self.begun = case, time.monotonic()
        self.cases += 1
        try:
            self.process.stdin.write(f"{case.kind} {case.seed} {case.number}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # `answer` sees the end of the output

    def answer(self) -> FuzzOutcome:
        """Reads the outcome, once the output can be read; a closed output is a crash."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            name, detail, self.resident = json.loads(line)
            return FuzzOutcome(name, detail)
        status = self.process.wait()
        self.errors.seek(0)
        return FuzzOutcome(CRASHED, f"exit status {status}: {self.errors.read()[-1500:]}")

    @property
    def seconds(self) -> int:
        """Time limit of the case."""
        return CASE_SECONDS if self.case is None or self.case.kind in LAUNCHED or self.cases == 1 else READING_SECONDS

    @property
    def needs_replacement(self) -> bool:
        gone = self.process.poll() is not None
        return gone or self.cases >= CASES_PER_WORKER or self.resident > WORKER_RESIDENT

    def close(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.errors.close()


def run_all(
    cases: Iterator[FuzzCase], jobs: int, objects: Sequence[str]
) -> Iterator[tuple[FuzzCase, FuzzOutcome, int]]:
    """Yields case, outcome and the worker's peak resident bytes, in the order in which cases end."""
    workers: list[FuzzWorker | None] = [None] * jobs
    try:
        active = True
        while active:
            active = False
            for slot in range(jobs):
                worker = workers[slot]
                if worker is None or worker.case is None:
                    case = next(cases, None)
                    if case is None:
                        continue
                    if worker is not None and worker.needs_replacement:
                        worker.close()
                        worker = None
                    worker = worker or FuzzWorker(objects)
                    workers[slot] = worker
                    worker.ask(case)
                active = True
            busy = [worker for worker in workers if worker is not None and worker.case is not None]
            for worker in _ready(busy):
                outcome = worker.answer()
                assert worker.case is not None
                yield worker.case, outcome, worker.resident
                worker.case = None
            for worker in busy:
                if worker.case is not None and time.monotonic() - worker.begun > worker.seconds:
                    worker.process.kill()
                    worker.process.wait()
                    yield worker.case, FuzzOutcome(HUNG, f"no answer in {worker.seconds} s"), worker.resident
                    worker.case = None
    finally:
        for worker in workers:
            if worker is not None:
                worker.close()


def _ready(workers: Sequence[FuzzWorker]) -> list[FuzzWorker]:
    """Returns the workers with an answer; waits a while for one."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(timeout=1.0)] if workers else []


def run_on(
    where: str, cases: Sequence[FuzzCase], objects: Sequence[str]
) -> Iterator[tuple[FuzzCase, FuzzOutcome, int]]:
    """Runs the cases on the cluster `where` and yields as `run_all`: tasks of CASES_PER_TASK, whose workers have a process for
    the cases."""
    from simgpu.tools.cases.cluster import HERE, processes_of, run_tasks

    if where == HERE or processes_of(where):
        yield from run_all(iter(cases), processes_of(where) or 1, objects)
        return
    tasks = [cases[first : first + CASES_PER_TASK] for first in range(0, len(cases), CASES_PER_TASK)]
    for _, future in run_tasks(where, functools.partial(run_task, objects=objects), tasks, "tasks"):
        yield from future.result()


def run_task(cases: Sequence[FuzzCase], objects: Sequence[str]) -> list[tuple[FuzzCase, FuzzOutcome, int]]:
    """Runs a cluster's task in a worker."""
    return list(run_all(iter(cases), 1, objects))


# -- command -------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    from simgpu.tools.cases.cluster import add_cluster_option  # not in processes with a cap on their memory

    made = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.fuzz", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--count", type=int, default=1000, help="cases of each kind (1000)")
    made.add_argument("--seed", type=int, default=1)
    add_cluster_option(made, f"local:{os.cpu_count() or 1}")
    made.add_argument("--kind", choices=KINDS, action="append", help="only this kind")
    made.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    made.add_argument("--objects", nargs="+", default=[], metavar="FILE", help="code objects to damage")
    made.add_argument("--only", type=int, help="run this case here and show its error")
    made.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    objects = [str(Path(path).resolve()) for path in options.objects]
    if options.serve:
        serve(objects)
        return 0
    kinds = options.kind or KINDS
    if options.only is not None:
        for kind in kinds:
            outcome = run_case(FuzzCase(kind, options.seed, options.only), objects, strict=True)
            print(f"{kind}: {outcome.name}: {outcome.detail}")
        return 0
    from simgpu.tools.shared.console import count_progress

    numbers = range(options.first, options.first + options.count)
    cases = [FuzzCase(kind, options.seed, number) for kind in kinds for number in numbers]
    summary: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in kinds}
    seen: collections.Counter[str] = collections.Counter()
    resident, begun = 0, time.monotonic()
    try:
        with count_progress(len(cases), "cases") as done:
            for case, outcome, bytes_used in run_on(options.cluster, cases, objects):
                done()
                summary[case.kind][outcome.name] += 1
                resident = max(resident, bytes_used)
                if outcome.failed:
                    signature = f"{outcome.name} {outcome.detail}"
                    if not seen[signature]:
                        print(f"{outcome.name}: {case.repeat(objects)}\n  {outcome.detail}", flush=True)
                    seen[signature] += 1
    except UsageError as error:
        parser().error(str(error))
    except KeyboardInterrupt:
        print("interrupted: what ended before")
    seconds = time.monotonic() - begun
    for signature, times in seen.most_common():
        print(f"{times} times: {signature}")
    for kind, counts in summary.items():
        listed: list[Any] = [f"{name} {count}" for name, count in counts.most_common()]
        print(f"{kind}: {sum(counts.values())} cases: {', '.join(listed)}")
    total = sum(sum(counts.values()) for counts in summary.values())
    print(
        f"{total} cases in {seconds:.0f} s ({60 * total / max(seconds, 1e-9):.0f} a minute), "
        f"at most {resident >> 20} MiB resident, {seen.total()} failures"
    )
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
