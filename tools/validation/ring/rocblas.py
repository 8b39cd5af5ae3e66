"""rocBLAS's matrix products, D (m, n) = 2 op(A) op(B) + C: the kernel that it chooses, and others that can compute the same.

The folder holds the unpacked packages (docs/how-to/rocm-libraries.md). `rocblas.c` is the program that calls rocBLAS; numbers
of types and operations are those of rocblas-types.h.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product as combinations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.ring.arrays import elements
from simgpu.tools.cases.same import Side
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.ring.groups import Group, Variant
from simgpu.tools.validation.ring.reference import as_type, product, reference
from simgpu.tools.validation.rocm import LIBRARIES, output

SOURCE = Path(__file__).with_name("rocblas.c")
SIZES = ((96, 80, 136), (65, 33, 257))  # m, n, k
COUNT = 24  # solutions of a product, beside the chosen one
SECONDS = 400.0  # of one product's program
OPERATIONS = {"n": 111, "t": 112}


@dataclass(frozen=True)
class ProductTypes:
    """Element types: of A and B, of C and D, and rocBLAS's numbers for them and for the sums."""

    name: str
    operands: Any
    results: Any
    numbers: tuple[int, int, int]


TYPES = (
    ProductTypes("f32", np.float32, np.float32, (151, 151, 151)),
    ProductTypes("f64", np.float64, np.float64, (152, 152, 152)),
    ProductTypes("f16", np.float16, np.float16, (150, 150, 151)),
    ProductTypes("f16 to f32", np.float16, np.float32, (150, 151, 151)),
    ProductTypes("bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16, (168, 168, 151)),
    ProductTypes("bf16 to f32", ml_dtypes.bfloat16, np.float32, (168, 151, 151)),
)


def groups(root: Path, target: str, scratch: Path, seed: int) -> Iterator[Group]:
    """Yields a group for each type, pair of transposes and size."""
    if not list((root / LIBRARIES).glob("librocblas.so.*")):
        raise UsageError(f"{root}/{LIBRARIES} has no librocblas: unpack it there (docs/how-to/rocm-libraries.md)")
    program = _compile(scratch)
    for number, (types, size, transposes) in enumerate(combinations(TYPES, SIZES, ("nn", "nt", "tn", "tt"))):
        folder = scratch / str(number)
        folder.mkdir()
        yield RocblasProduct(types, size, transposes, root.resolve(), target, program, folder, seed).group()


def _compile(scratch: Path) -> Path:
    made = scratch / "rocblas"
    command = [sys.executable, "-m", "ziglang", "cc", "-w", str(SOURCE), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{SOURCE.name} cannot be compiled: {' '.join(done.stderr.split())[:300]}")
    return made


@dataclass(frozen=True)
class RocblasProduct:
    """Product that one run of the program computes by several kernels."""

    types: ProductTypes
    size: tuple[int, int, int]
    transposes: str
    root: Path
    target: str
    program: Path
    folder: Path
    seed: int

    def group(self) -> Group:
        """Returns the group: the chosen kernel, and `COUNT` others."""
        title = f"{self.types.name} {self.transposes} {'x'.join(map(str, self.size))}"
        variants = [Variant(f"solution {at}" if at else "chosen", partial(self._side, at)) for at in range(COUNT + 1)]
        return Group(title, variants, self._reference)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        m, n, k = self.size
        shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
        kinds = {"a": self.types.operands, "b": self.types.operands, "c": self.types.results}
        return {name: rng.standard_normal(shape).astype(kinds[name]) for name, shape in shapes.items()}

    @property
    def _reference(self) -> Side:
        a, b, c = self._arrays.values()
        summed = 2 * product(a, b) + elements(c)
        return reference(self._before, {"d": as_type(summed, c.dtype)})

    @property
    def _before(self) -> dict[str, np.ndarray]:
        return {**self._arrays, "d": np.zeros_like(self._arrays["c"])}

    @cached_property
    def _lines(self) -> list[list[int]]:
        """Runs the program. Returns the lines that it printed: file, solution, status."""
        arrays = self._arrays
        for name, transposed in zip("abc", (*(letter == "t" for letter in self.transposes), False), strict=True):
            # Columns without gaps: the rows of the transpose.
            (self.folder / name).write_bytes((arrays[name] if transposed else arrays[name].T).tobytes())
        library = max((self.root / LIBRARIES).glob("librocblas.so.*"), key=lambda path: len(path.name)).name
        numbers = (COUNT, self.seed, *(OPERATIONS[letter] for letter in self.transposes), *self.size, *self.types.numbers)
        sizes = (arrays[name].nbytes for name in "abc")
        words = [str(self.program), library, *map(str, (*numbers, *sizes))]
        text, why = output(words, self.root, self.target, SECONDS, self.folder, modes=["--ring"])
        lines = [line.split() for line in text.splitlines()]
        found = [[int(word) for word in line] for line in lines if len(line) == 3 and all(word.isdigit() for word in line)]
        if not found:
            raise LaunchError(f"the program {why or 'computed nothing'}: {' '.join(text.split())[-200:]}")
        return found

    def _side(self, at: int) -> Side:
        """Returns the result of a kernel. Raises LaunchError if there is none."""
        line = next((line for line in self._lines if line[0] == at), None)
        if line is None or line[2]:
            raise LaunchError("rocBLAS has no more kernels" if line is None else f"solution {line[1]}: status {line[2]}")
        m, n, _ = self.size
        raw = np.frombuffer((self.folder / str(at)).read_bytes(), self.types.results).reshape(n, m).T
        return Side(f"solution {line[1]}", self._before, {**self._arrays, "d": np.ascontiguousarray(raw)}, [])
