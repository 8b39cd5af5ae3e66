"""Sides of a GEMM tile in closed form: three optima of T, each the root of two terms, rounded down and up to the unit.

Letters: u the unit (elements), in which tile sides, M = ceil(m/u) and N = ceil(n/u) are counted; b the batch, C the CUs; e and c
bytes of an element of A and of C; P the matrix peak (FLOP/s); W and H the bandwidths of the re-read level and of HBM;
R = ceil(b*M*N/(C*area)) the least rounds of tiles, one a CU, with the largest area that the bounds allow.

  balance  no split: eta against re-reads. R full rounds have t = sqrt(b*M*N/(C*R)); in one round t is at least where the re-reads
           2*b*m*n*k*e/(t*W) take as long as the products of one tile 2*t^2*k*C/P:  t^3 = b*m*n*e*P/(C*W)
  shared   K shared so that C CUs have one round, s = C*t^2/(b*m*n) blocks a tile: re-reads, which fall with t, take as long as
           the partial tiles 2*s*b*m*n*c/H, which grow with it:  t^3 = b*m*n*k*e*H/(C*c*W)
  fine     the least tile whose re-reads take no longer than T must, T0 = max(FLOP/P, bytes/H): t = 2*b*m*n*k*e/(W*T0 - bytes of C);
           many small tiles pad little and quantise well

Rounding. Balance: `fit` along the longer side of the matrix, where rounding pads least. Shared: squares. Fine: up a square, down
the narrow side, `fit` with R rounds. Every side is spread `even`ly: x = ceil(M/ceil(M/x)) needs no more tiles and pads less. `fit`
gives the other side what is left of the CUs: with x come g = ceil(M/x) tiles, R' = max(R, ceil(b*g*ceil(N/y_max)/C)) rounds, and
y = ceil(N/floor(R'*C/(b*g))).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, sqrt

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.operators.gemm.problem import GemmProblem

Sides = tuple[int, int]


@dataclass(frozen=True)
class Bounds:
    """What a tile of x by y units may take; (1, 1) is an answer whatever these say.

    x + y <= lds and <= arch, x*y <= acc, per_side*(x + y) + per_area*x*y <= registers (both files); `longest`: of one side.
    """

    unit: int
    lds: int
    arch: int
    acc: int
    registers: int
    per_side: int
    per_area: int
    longest: int

    def broken(self, x: int, y: int) -> str:
        """The first constraint that x by y breaks, by its row's name; empty if it fits."""
        rows = {
            "LDS": x + y <= self.lds,
            "ArchVGPR": x + y <= self.arch,
            "AccVGPR": x * y <= self.acc,
            "VGPR file": self.per_side * (x + y) + self.per_area * x * y <= self.registers,
        }
        return next((name for name, fits in rows.items() if not fits), "")

    def clip(self, x: int) -> int:
        """A side that leaves room for another of one unit."""
        beside = (self.registers - self.per_side) // (self.per_side + self.per_area)
        return max(1, min(x, self.longest, self.lds - 1, self.arch - 1, self.acc, beside))

    def other(self, x: int) -> int:
        """The longest side beside x."""
        by_file = (self.registers - self.per_side * x) // (self.per_side + self.per_area * x)
        return max(1, min(self.longest, self.lds - x, self.arch - x, self.acc // x, by_file))

    @property
    def square(self) -> int:
        """The side of the largest square: the root of per_area*x^2 + 2*per_side*x = registers, or what the others leave."""
        a, g = self.per_side, self.per_area
        by_file = (isqrt(max(0, a * a + g * self.registers)) - a) // g
        return self.clip(min(by_file, isqrt(max(0, self.acc)), self.lds // 2, self.arch // 2))

    @property
    def area(self) -> int:
        """Units of the largest square and of what still goes beside it."""
        return self.square * self.other(self.square)


def answers(problem: GemmProblem, descriptor: HardwareDescriptor, bounds: Bounds) -> dict[str, Sides]:
    """(x, y) in units by what they are best for (module docstring)."""
    p, u = problem, bounds.unit
    e, c, cus = p.element.bytes, dtype(p.dtype_c).bytes, descriptor.num_cus
    peak, reread = descriptor.matrix_tflops(p.dtype) * 1e12, descriptor.reread_bandwidth_tb * 1e12
    rows, columns, products = -(-p.m // u), -(-p.n // u), p.batch * p.m * p.n
    grid = _Grid(rows, columns, p.batch, cus, bounds)
    rounds = -(-p.batch * rows * columns // (cus * bounds.area))
    balance = sqrt(p.batch * rows * columns / (cus * rounds))
    if rounds == 1:
        balance = max(balance, (products * e * peak / (cus * reread)) ** (1 / 3) / u)
    shared = (products * p.k * e / (cus * c) * descriptor.hbm_bandwidth_tb / descriptor.reread_bandwidth_tb) ** (1 / 3) / u
    least = max(p.flops / peak, p.bytes_once / (descriptor.hbm_bandwidth_tb * 1e12))
    room = least * reread - p.epilogue_bytes
    fine = 2 * products * p.k * e / room / u if room > 0 else bounds.square
    return {
        "largest": grid.square(bounds.square),
        "balance": grid.fit(int(balance), rounds, rows <= columns),
        "balance, up": grid.fit(int(balance) + 1, rounds, rows <= columns),
        "shared": grid.square(int(shared)),
        "shared, up": grid.square(int(shared) + 1),
        "fine": grid.square(ceil(fine)),
        "fine, narrow": grid.fit(int(fine), rounds, rows > columns),
    }


@dataclass(frozen=True)
class _Grid:
    rows: int
    columns: int
    batch: int
    cus: int
    bounds: Bounds

    def square(self, x: int) -> Sides:
        """x by x, spread evenly."""
        side = max(1, min(x, self.bounds.square))
        return even(self.rows, side), even(self.columns, side)

    def fit(self, x: int, rounds: int, of_columns: bool) -> Sides:
        """x of the columns (or rows), spread evenly, and what fills at least `rounds` rounds of the other dimension."""
        first, second = (self.columns, self.rows) if of_columns else (self.rows, self.columns)
        x = even(first, self.bounds.clip(x))
        tiles = self.batch * -(-first // x)
        rounds = max(rounds, -(-tiles * -(-second // self.bounds.other(x)) // self.cus))
        y = -(-second // max(1, min(second, rounds * self.cus // tiles)))
        return (y, x) if of_columns else (x, y)


def even(size: int, x: int) -> int:
    """The least side that needs no more tiles than x does."""
    return -(-size // -(-size // x))
