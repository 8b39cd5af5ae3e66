"""How many blocks share one reduction (split-K, split-KV, split-N), in closed form.

t tiles of `steps` steps each on C CUs take ceil(t*s/C) * ceil(steps/s) rounds of steps if s blocks share a tile, and every block
beyond the first per tile costs `partial` bytes, written and read once. With T the time at full occupancy (compute and traffic
together):

  one round (t < C)   compute * C/(t*s) falls, (base + s*partial)/BW rises; they meet at the root of
                      partial*s^2 + base*s = compute*BW*C/t; what counts are whole steps a block:
                      q = ceil(steps/floor(root)), at least ceil(steps/floor(C/t)), or q - 1
  many rounds         R full rounds have s = floor(R*C/t) and eta = t*s/(R*C) >= 1 - t/(R*C): R = 2, or as many as are paid for,
                      where the partial tiles take as long as compute (at most 8)
  s                   of these and 1 the least within TOLERANCE of the best under the expression above (E25)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

TOLERANCE = 1.02  # of T: what a second pass costs beside its traffic
ROUNDS = 8  # more full rounds than this gain less than 1/8 of a round


@dataclass(frozen=True)
class Reduction:
    """A grid of reductions."""

    tiles: int
    steps: int  # of a tile
    compute: float  # seconds at full occupancy
    base_bytes: int  # moved without a split
    partial_bytes: int  # moved besides for each block that shares a tile
    bandwidth: float  # bytes a second
    cus: int

    def parts(self, split: int) -> int:
        """The split that is left when every block but the last has the same number of steps."""
        return -(-self.steps // -(-self.steps // split))

    def seconds(self, split: int) -> float:
        """Time under the roofline with quantised occupancy."""
        steps = -(-self.steps // split)
        parts = self.parts(split)
        rounds = -(-self.tiles * parts // self.cus)
        compute = self.compute * rounds * steps * self.cus / (self.tiles * self.steps)
        return max(compute, (self.base_bytes + (self.partial_bytes * parts if parts > 1 else 0)) / self.bandwidth)

    def split(self) -> int:
        """Blocks per tile, 1 to `steps` (module docstring)."""
        t, c = self.tiles, self.cus
        work = int(self.compute * self.bandwidth)
        root = (isqrt(self.base_bytes**2 + 4 * self.partial_bytes * (work * c // t)) - self.base_bytes) // (2 * self.partial_bytes)
        below = -(-self.steps // max(1, min(root, c // t, self.steps)))
        paid_for = (max(work, self.base_bytes) - self.base_bytes) // self.partial_bytes
        most = min(ROUNDS, t * paid_for // c)
        each = {self.steps, below, max(1, below - 1), *(-(-self.steps // max(1, rounds * c // t)) for rounds in (2, most))}
        answers = {-(-self.steps // steps) for steps in each}
        enough = TOLERANCE * min(map(self.seconds, answers))
        return self.parts(min(answer for answer in answers if self.seconds(answer) <= enough))
