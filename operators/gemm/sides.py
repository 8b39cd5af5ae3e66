"""Candidates for the sides of a GEMM tile in closed form: five optima, rounded to the unit.

Letters: u the unit (elements) of tile sides, M = ceil(m/u) and N = ceil(n/u); b the batch, C the CUs; e bytes of an element of
A; F the FLOP a second of a CU; W the bandwidth of L2.

    largest   the largest that the bounds allow: fewest re-reads, for many rounds
    rounds    R full rounds, one tile a CU: t = sqrt(b*M*N/(C*R)). R is the least that the largest tile allows, or one more
    shared    K shared so that C CUs have r blocks each, r = 1 or 4, with s = r*C*t^2/(b*m*n) blocks a tile. Re-reads
              2*b*m*n*k*e/(W*t) fall with t. The second pass grows with it by D seconds a part (`cost.seconds_a_part`), s*D.
              They are equal for  t^3 = 2*(b*m*n)^2*k*e / (W*r*C*D)
    re-reads  in one round, re-reads 2*b*m*n*k*e/(W*t) take as long as the products of one tile, 2*t^2*k/F:  t^3 = b*m*n*e*F/W
    fine      the least tile whose operands keep up with the matrix units, 2*t^2*k/F, from LDS, (4/read + 2/write)*t*k*e, from the
              vector cache, 2*t*k*e/L1, and from L2, 2*t*k*e*C/W. It pads little and quantises well:
              t = F*e*max(2/read + 1/write, 1/L1, C/W)

Rounding. Rounds: `fit` with the root rounded down and up, along either axis. Shared: along each axis on its own, the even side
below or above, or the one to twice the root that pads least. Re-reads: both even sides below, or both above. Fine: a square,
rounded up, and floor(t) by the side that gives 1/x + 1/y <= 2/t, either way. Every side is spread `even_side`ly:
x = ceil(M/ceil(M/x)) needs no more tiles and pads less. `fit` gives the other side the remaining CUs. x makes g = ceil(M/x) tiles,
R' = max(R, ceil(b*g*ceil(N/y_max)/C)) rounds, and y = ceil(N/floor(R'*C/(b*g))).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil, isqrt, sqrt

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import SustainedRates
from simgpu.operators.cost import seconds_a_part
from simgpu.operators.gemm.limits import matrix_flops_per_clock
from simgpu.operators.gemm.problem import GemmProblem

Sides = tuple[int, int]
_TOGETHER = 4  # blocks of a CU that hide each other's loads


@dataclass(frozen=True)
class SideLimits:
    """Limits of a tile of x by y units. The tile (1, 1) is a candidate even if it violates them.

    x + y <= lds and <= arch, x*y <= acc, per_side*(x + y) + per_row*x + per_area*x*y <= registers (both files). Code that may
    use either side for the rows assumes per_row for both.
    """

    unit: int  # elements of a unit
    lds: int
    arch: int
    acc: int
    registers: int
    per_side: int
    per_area: int
    longest: int  # limit of one side
    both: str = "VGPR file"  # name of the row that x*y and x + y share
    per_row: int = 0
    per_padded: int = 0  # registers for each unit that the rows lack to a power of two, if that many are staged

    def broken_limit(self, x: int, y: int) -> str:
        """Returns the name of the first row that x by y violates; empty if it fits."""
        rows = {
            "LDS": x + y <= self.lds,
            "ArchVGPR": x + y <= self.arch,
            "AccVGPR": x * y <= self.acc,
            self.both: self.per_side * (x + y) + self.per_row * x + self.per_area * x * y + self._padding(x) <= self.registers,
        }
        return next((name for name, fits in rows.items() if not fits), "")

    @property
    def per_either(self) -> int:
        """Registers for a unit of a side that may be the rows."""
        return self.per_side + self.per_row

    def clip(self, x: int) -> int:
        """Returns x, limited so that the other side has room for at least one unit."""
        beside = (self.registers - self.per_either) // (self.per_either + self.per_area)
        return max(1, min(x, self.longest, self.lds - 1, self.arch - 1, self.acc, beside))

    def longest_beside(self, x: int) -> int:
        """Returns the longest other side of a tile with side x."""
        return self._limit_beside(x, (self.registers - self.per_either * x) // (self.per_either + self.per_area * x))

    def rows(self, y: int) -> int:
        """Returns the most rows of a tile of y columns, including the registers that pad them to a power of two."""
        room, each = self.registers - self.per_side * y, self.per_either + self.per_area * y
        most = self._limit_beside(y, room // each)
        padded = 1 << (most - 1).bit_length()
        if not self.per_padded or each * most + self._padding(most) <= room:
            return most
        return max(padded // 2, min(most, (room - self.per_padded * padded) // (each - self.per_padded)))

    def _padding(self, x: int) -> int:
        return self.per_padded * ((1 << (x - 1).bit_length()) - x)

    def _limit_beside(self, x: int, by_file: int) -> int:
        return max(1, min(self.longest, self.lds - x, self.arch - x, self.acc // x, by_file))

    @property
    def square(self) -> int:
        """Side of the largest square: the root of per_area*x^2 + 2*per_side*x = registers, or less by the other limits."""
        a, g = self.per_either, self.per_area
        by_file = (isqrt(max(0, a * a + g * self.registers)) - a) // g
        return self.clip(min(by_file, isqrt(max(0, self.acc)), self.lds // 2, self.arch // 2))

    @property
    def area(self) -> int:
        """Units of the largest rectangle whose one side is that of the largest square."""
        return self.square * self.longest_beside(self.square)


def answers(problem: GemmProblem, rates: SustainedRates, bounds: SideLimits) -> dict[str, Sides]:
    """Returns the sides (x, y) of each optimum, in units, by its name (module docstring)."""
    p, u = problem, bounds.unit
    e, c, cus = p.element_bytes, dtype(p.accumulator).bytes, rates.descriptor.num_cus
    grid = _Grid(-(-p.m // u), -(-p.n // u), p.batch, cus, bounds)
    outputs, units = p.batch * p.m * p.n, p.batch * grid.rows * grid.columns
    found = {"largest": grid.spread(bounds.square, bounds.longest_beside(bounds.square))}
    least = -(-units // (cus * bounds.area))
    for rounds in (least, least + 1):
        side = int(sqrt(units / (cus * rounds)))
        for x in (side, side + 1):
            found[f"{rounds} full round(s) of {max(1, x) * u} rows"] = grid.fit(x, rounds)
            found[f"{rounds} full round(s) of {max(1, x) * u} columns"] = grid.transpose.fit(x, rounds)[::-1]
    second = seconds_a_part(rates, outputs * c)
    for each in (1, _TOGETHER):
        shared = (2.0 * outputs**2 * p.k * e / (rates.l2 * each * cus * second)) ** (1 / 3) / u
        sides = ((*axis.rows_around(shared), axis.rows_of_least_padding(shared)) for axis in (grid, grid.transpose))
        for x, y in product(*sides):
            found[f"K shared by {each} block(s) a CU of {x * u} by {y * u}"] = grid.spread(x, y)
    flops = matrix_flops_per_clock(p, rates.descriptor)
    reread = (outputs * e * flops * rates.clock / rates.l2) ** (1 / 3) / u
    for name, x, y in zip(("down", "up"), grid.rows_around(reread), grid.transpose.rows_around(reread), strict=True):
        found[f"re-reads {name}"] = grid.spread(x, y)
    lds = 2 / rates.rates.lds_read + 1 / rates.rates.lds_write
    fine = flops * e * max(lds, 1 / rates.rates.cache, cus * rates.clock / rates.l2) / u
    found["fine"] = grid.spread(ceil(fine), ceil(fine))
    if 2 * int(fine) > fine:
        beside = ceil(1 / (2 / fine - 1 / int(fine)))
        found |= {"fine and tall": grid.spread(beside, int(fine)), "fine and wide": grid.spread(int(fine), beside)}
    return found


@dataclass(frozen=True)
class _Grid:
    rows: int
    columns: int
    batch: int
    cus: int
    bounds: SideLimits

    @property
    def transpose(self) -> _Grid:
        """Grid with rows and columns exchanged."""
        return replace(self, rows=self.columns, columns=self.rows)

    def spread(self, x: int, y: int) -> Sides:
        """Returns sides x and y, or those of the largest square if x by y violates a limit, each spread evenly."""
        if self.bounds.broken_limit(x, y) or max(x, y) > self.bounds.longest:
            x = y = self.bounds.square
        return even_side(self.rows, max(1, x)), even_side(self.columns, max(1, y))

    def rows_around(self, root: float) -> tuple[int, int]:
        """Returns even sides along the rows: at most `root`, and at least `root`."""
        return even_side(self.rows, max(1, int(root))), -(-self.rows // max(1, int(self.rows / root)))

    def rows_of_least_padding(self, root: float) -> int:
        """Returns the side along the rows to twice `root` that pads least; of equal ones the longest."""
        most = max(1, min(int(2 * root), self.rows, self.bounds.longest))
        return min(range(1, most + 1), key=lambda x: (-(-self.rows // x) * x, -x))

    def fit(self, x: int, rounds: int) -> Sides:
        """Returns x, spread evenly over the rows, and the y that fills at least `rounds` rounds."""
        x = even_side(self.rows, self.bounds.clip(x))
        tiles = self.batch * -(-self.rows // x)
        rounds = max(rounds, -(-tiles * -(-self.columns // self.bounds.longest_beside(x)) // self.cus))
        return x, -(-self.columns // max(1, min(self.columns, rounds * self.cus // tiles)))


def even_side(size: int, x: int) -> int:
    """Returns the smallest side that needs no more tiles than side x."""
    return -(-size // -(-size // x))
