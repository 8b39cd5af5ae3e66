"""Runs the test clients of ROCm's libraries, unpacked into a folder, under `simgpu hip`, and prints a table of their tests.

    python -m simgpu.tools.validation.rocm FOLDER [--target mi210] [--clients rocfft,rocblas] [--seconds 300] [--seed 49] [--draw 3]

The folder holds packages of Debian (docs/how-to/rocm-libraries.md). Programs run with the folder's own C library, through
its loader, so neither a chroot nor root's rights are needed.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from simgpu.tools.shared.console import show, table
from simgpu.tools.shared.errors import UsageError

PROGRAMS = ("usr/libexec/*", "usr")  # patterns: folders of packages' folders
BACKENDS = "ggml/backends0"  # libraries that ggml looks for in the folder where it runs
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "lib64/ld-linux-x86-64.so.2"
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:,.*)? \(\d+ ms\)$", re.MULTILINE)
PASSED = re.compile(r"^\[  PASSED  \] [1-9]", re.MULTILINE)
GGML_RESULT = re.compile(r"^  (\w+\(.*\)): (?:\x1b\[[\d;]*m)?(OK|FAIL)\b", re.MULTILINE)
TOTALS = re.compile(r"^Totals: (\d+) failures, \d+ known failures, (\d+) errors, and (\d+) passes", re.MULTILINE)  # of Thrust
FINDING = re.compile(r"^simgpu hip: error: (.*(?:\n  .*)*)", re.MULTILINE)
STARTED = re.compile(r"^\[ RUN +\] (\S+)", re.MULTILINE)
SUITE = re.compile(r"^(\S+\.)(?:\s+#.*)?$")  # in a list of tests
CATEGORY = re.compile(rb"(?:quick|pre_checkin|nightly)\0")  # of a record of test data
MANY = {f"gemm{kind}": 20 for kind in ("", "_ex", "_batched", "_batched_ex", "_strided_batched", "_strided_batched_ex")} | {
    "matmul": 100, "spmm": 30, "spmm_batched": 15, "spmm_strided_batched": 15,
}  # records that are drawn of these functions; of others two


@dataclass(frozen=True)
class Client:
    """A library's test program."""

    name: str
    package: str  # a pattern: the folder of its programs
    program: str  # or a pattern: each program of the package that matches
    arguments: tuple[str, ...]  # a choice of its tests; {seed}, {folder}, {data} and {cases} are replaced
    drawn: str = ""  # pattern of the tests that --draw may choose; "": it is no program of Google Test, or draws by itself
    records: str = ""  # pattern of its test data: a sample of them is {data}


CLIENTS = (
    Client("rocblas", "librocblas*-tests", "rocblas-test", ("--data", "{data}"),
           records="usr/share/librocblas*-tests/data/rocblas_gtest.data"),
    Client("rocsolver", "librocsolver0-tests", "rocsolver-test", ("--gtest_filter=checkin*GETRF*",), "checkin"),
    Client("rocfft", "librocfft0-tests", "rocfft-test",
           ("--seed", "{seed}", "--test_prob", "0.001", "--gtest_filter=pow2_1D*:pow3_1D*:mix_1D*:pow2_2D*")),
    Client("hipfft", "libhipfft0-tests", "hipfft-test", ("--seed", "{seed}", "--test_prob", "0.05", "--gtest_filter=pow2_1D*")),
    Client("rocsparse", "librocsparse1-tests", "rocsparse-test", ("--gtest_filter=*quick*",), "quick",
           "usr/share/librocsparse1-tests/data/rocsparse_test.data"),
    Client("hipsparse", "libhipsparse[0-9]*-tests", "hipsparse-test", ("--gtest_filter=*csrmv*",), "."),
    Client("hipsolver", "libhipsolver*-tests", "hipsolver-test", ("--gtest_filter=checkin*GETRF*",), "checkin"),
    Client("hipblaslt", "libhipblaslt1-tests", "hipblaslt-test", ("--data", "{data}"),
           records="usr/share/hipblaslt/*/test/hipblaslt_gtest.data"),
    Client("hipsparselt", "bin", "hipsparselt-test", ("--data", "{data}"), records="usr/bin/hipsparselt_gtest.data"),
    Client("rocrand", "librocrand1-tests", "test_*", (), "."),
    Client("hiprand", "libhiprand1-tests", "test_*", (), "."),
    Client("rocprim", "librocprim-tests", "test_*", (), "."),
    Client("hipcub", "libhipcub-tests", "test_*", (), "."),
    Client("rocthrust", "librocthrust-tests", "test_*", ()),
    Client("rocwmma", "librocwmma-tests", "*_test", (), "."),
    Client("ggml", "ggml", "test-backend-ops", ("test", "-b", "ROCm0", "-o", "{cases}")),
)  # fmt: skip


@dataclass
class ClientOutcome:
    """Tests of a client that ended."""

    client: Client
    counts: Counter[str] = field(default_factory=Counter)  # of OK, FAILED and SKIPPED
    wrong: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # programs out of time, or ended by a signal or before their first test
    found: dict[str, str] = field(default_factory=dict)  # errors of checks, by their kind and place
    programs: int = 0
    seconds: float = 0.0

    @property
    def row(self) -> tuple[object, ...]:
        counts = (self.counts[kind] for kind in ("OK", "FAILED", "SKIPPED"))
        ended = f"{self.programs - len(self.unfinished)} of {self.programs}"
        return self.client.name, *counts, f"{self.seconds:.0f}", ended


def programs(client: Client, root: Path) -> list[Path]:
    """Returns the client's programs in the folder."""
    return sorted(each for folder in PROGRAMS for each in root.glob(f"{folder}/{client.package}/{client.program}"))


def run(
    client: Client, root: Path, target: str, seconds: float, seed: int, draw: int = 0, modes: Sequence[str] = ()
) -> ClientOutcome:
    """Runs each program of a client for at most `seconds`, and counts the tests that ended until then.

    draw: number of tests that are drawn of each program, 0 for the client's own choice. modes: as for `output`
    """
    outcome = ClientOutcome(client)
    for program in programs(client, root):
        with tempfile.TemporaryDirectory(prefix="simgpu-rocm-") as scratch:
            data = Path(scratch, Path(client.records).name)
            for records in root.glob(client.records) if client.records else ():
                data.write_bytes(b"".join(sample(records, seed)))
            cases = ""
            if "{cases}" in client.arguments:
                cases = ",".join(ggml_cases(support_table(program, root, target, seconds, Path(scratch)), max(1, draw), seed))
            words = [word.format(seed=seed, folder=root, data=data, cases=cases) for word in client.arguments]
            command = [str(program), *words]
            if draw and client.drawn:
                listed, _ = output([*command, "--gtest_filter=*", "--gtest_list_tests"], root, target, seconds, Path(scratch))
                flags = Path(scratch, "flags")
                flags.write_text("--gtest_filter=" + ":".join(pick(listed, client.drawn, draw, seed)))
                command = [*(word for word in command if not word.startswith("--gtest_filter")), f"--gtest_flagfile={flags}"]
            begun = time.monotonic()
            text, why = output(command, root, target, seconds, Path(scratch), modes=modes)
        results = RESULT.findall(text)
        results += [("FAILED" if result == "FAIL" else result, name) for name, result in GGML_RESULT.findall(text)]
        counts = Counter(result for result, _ in results)
        for failures, errors, passes in TOTALS.findall(text):
            counts += Counter(OK=int(passes), FAILED=int(failures) + int(errors))
        if not why and not counts and not PASSED.search(text):
            why = "ran no test"
        if why and len(begun_tests := STARTED.findall(text)) > len(results):
            why += f" in {begun_tests[-1]}"
        spent = time.monotonic() - begun
        print(f"{program.name}: {counts['OK']} right, {counts['FAILED']} wrong, {spent:.0f} s {why}".rstrip(), file=sys.stderr)
        outcome.found |= findings(text)
        outcome.programs += 1
        outcome.seconds += spent
        outcome.counts += counts
        wrong = dict.fromkeys(name for result, name in results if result == "FAILED")
        outcome.wrong += [f"{program.name} {name}" for name in wrong]
        if why:
            outcome.unfinished.append(f"{program.name} {why}")
    return outcome


def output(
    words: Sequence[str], root: Path, target: str, seconds: float, scratch: Path, errors: BinaryIO | None = None,
    modes: Sequence[str] = (),
) -> tuple[str, str]:  # fmt: skip
    """Returns what a program printed, and why it did not end by itself ("" if it did).

    errors: gets what it printed to stderr; None: that is part of the answer. modes: further options of `simgpu hip`
    """
    # `simgpu hip` puts its library first in LD_LIBRARY_PATH, which the loader's option replaces.
    folders = ":".join(str(root / LIBRARIES / name) for name in ("", "blas", "openblas-pthread", "lapack", "llama"))
    start = f'exec "$0" --library-path "$LD_LIBRARY_PATH:{folders}" "$@"'
    # HIP's allocations have whole multiples of 256 bytes, so reads of a few bytes too many (rocSOLVER's GESVD) end well on a GPU.
    options = ("--target", target, "--pad", "256", *modes)
    command = [sys.executable, "-m", "simgpu", "hip", *options, "sh", "-c", start, str(root / LOADER), *words]
    environment = {**os.environ, "GTEST_LISTENER": "PASS_LINE_IN_LOG", "ROCSPARSE_CLIENTS_TEST_DATA_DIR": f"{scratch}/"}
    printed = scratch / "output"
    why = ""
    with printed.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=errors or subprocess.STDOUT, env=environment, cwd=scratch)
        try:
            status = process.wait(seconds)
            if status < 0 or status > 128:
                why = f"ended by signal {-status if status < 0 else status - 128}"
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            why = "out of time"
    return printed.read_text(errors="replace"), why


def findings(text: str) -> dict[str, str]:
    """Returns the errors of checks in what a program printed, one of each kind and place.

    >>> [*findings("simgpu hip: error: race: of LDS 0x8\\n  at f+0x4 `ds_read_b32 v1, v2`\\nsimgpu hip: note: leak\\n").values()]
    ['race: of LDS 0x8\\n  at f+0x4 `ds_read_b32 v1, v2`']
    """
    found: dict[str, str] = {}
    for finding in FINDING.findall(text):
        heading, *places = finding.split("\n")
        found.setdefault(f"{heading.partition(':')[0]} {places[0] if places else heading}", finding)
    return found


def sample(path: Path, seed: int) -> Iterator[bytes]:
    """Yields the header of a client's test data, and a random choice of its quick tests: 2 of each function, more of MANY.

    The client reads all of its data, 0.3 to 0.9 GB, before each suite. A record has its function's name 128 bytes before its
    category. The header holds one record, between the words rocBLAS and ROCblas, for instance, or hipBLASLt and HIPblaslT.
    """
    data = path.read_bytes()
    word = data[: data.index(b"\0") + 1]
    size = data.index(word.swapcase()) - len(word)
    start = size + 2 * len(word)
    category = CATEGORY.search(data, start)
    place = category.start() - start if category else 0
    found: dict[str, list[int]] = {}
    for at in range(start, len(data) - size + 1, size):
        if data.startswith(b"quick\0", at + place):
            found.setdefault(data[at + place - 128 : at + place - 64].partition(b"\0")[0].decode(), []).append(at)
    chance = random.Random(seed)
    chosen = [chance.sample(each, min(MANY.get(name, 2), len(each))) for name, each in sorted(found.items())]
    yield data[:start]
    for at in sorted(at for each in chosen for at in each):
        yield data[at : at + size]


def pick(listed: str, pattern: str, count: int, seed: int) -> list[str]:
    """Returns a random choice of the tests that a program lists: one of each suite, then a second one, until there are `count`.

    >>> pick("quick/axpy.\\n  f32\\n  f64\\nslow/axpy.\\n  f32\\nquick/dot.  # TypeParam = int\\n  f32  # 1\\n", "quick", 2, 49)
    ['quick/axpy.f32', 'quick/dot.f32']
    """
    suites: dict[str, list[str]] = {}
    suite = ""
    for line in listed.splitlines():
        if heading := SUITE.match(line):
            suite = heading[1]
        elif line.startswith("  ") and suite and re.search(pattern, name := suite + line.split()[0]):
            suites.setdefault(suite, []).append(name)
    chance = random.Random(seed)
    turns = [(turn, chance.random(), name) for each in suites.values() for turn, name in enumerate(chance.sample(each, len(each)))]
    return sorted(name for _, _, name in sorted(turns)[:count])


def support_table(program: Path, root: Path, target: str, seconds: float, scratch: Path) -> str:
    """Returns the tests of ggml's program, in CSV: 1 as "supported" says that the GPU takes it."""
    link_backends(root, scratch)
    return output([str(program), "support", "-b", "ROCm0", "--output", "csv"], root, target, seconds, scratch)[0]


def link_backends(root: Path, scratch: Path) -> None:
    """Links ggml's libraries for GPU and host into the folder where a program of ggml will run: it looks there."""
    for backend in sorted((root / LIBRARIES / BACKENDS).glob("*.so")):
        (scratch / backend.name).symlink_to(backend)


def ggml_cases(listed: str, count: int, seed: int) -> list[str]:
    """Returns `count` random tests of each operator of ggml that the GPU takes. listed: see `support_table`.

    >>> ggml_cases('"op_name","op_params","supported"\\n"ABS","type=f16,v=0","1"\\n"ADD","type=f32","0"\\n', 1, 49)
    ['ABS(type=f16,v=0)']
    """
    tests: dict[str, list[str]] = {}
    for row in csv.DictReader(line for line in listed.splitlines() if line.startswith('"')):
        if row["supported"] == "1":
            tests.setdefault(row["op_name"], []).append(f"{row['op_name']}({row['op_params']})")
    chance = random.Random(seed)
    return [case for _, each in sorted(tests.items()) for case in chance.sample(each, min(count, len(each)))]


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table; status 1 if a test is wrong."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.validation.rocm", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the unpacked packages")
    parser.add_argument("--target", default="mi210", help="board (mi210: most packages have code for it)")
    parser.add_argument("--clients", default=",".join(client.name for client in CLIENTS), help="which, by commas (default: all)")
    parser.add_argument("--seconds", type=float, default=300, help="most time of a program (300)")
    parser.add_argument("--seed", type=int, default=49, help="of random choices of tests (49)")
    parser.add_argument("--draw", type=int, default=0, help="this many random tests of each program (default: a fixed choice)")
    parser.add_argument("--check", action="store_true", help="in checked mode: list its errors, one of each kind and place")
    options = parser.parse_args(words)
    modes = ["--check"] * options.check
    root = options.folder.resolve()
    if not (root / LOADER).exists():
        raise UsageError(f"{options.folder} has no {LOADER}: unpack libc6 into it, too")
    outcomes = []
    for client in CLIENTS:
        if client.name not in options.clients.split(","):
            continue
        if not programs(client, root):
            print(f"{client.name}: {client.package} is not unpacked there: skipped", file=sys.stderr)
            continue
        outcomes.append(run(client, root, options.target, options.seconds, options.seed, options.draw, modes))
    columns = ("client", "right", "wrong", "skipped", "seconds", "programs ended")
    show(table(f"Tests of ROCm's libraries on {options.target}, seed {options.seed}", columns, [each.row for each in outcomes]))
    for each in outcomes:
        for name in each.wrong:
            print(f"wrong: {each.client.name} {name}")
        for program in each.unfinished:
            print(f"unfinished: {each.client.name} {program}")
        for finding in each.found.values():
            print(f"\nfound: {each.client.name} {finding}")
    return int(any(each.wrong for each in outcomes))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(f"simgpu: {error}")
