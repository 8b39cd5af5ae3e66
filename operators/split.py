"""How many blocks share one reduction (split-K, split-KV, split-N), in closed form.

t tiles of `steps` steps each on C CUs take ceil(t*s/C) * ceil(steps/s) rounds of steps if s blocks share a tile, and every block beyond
the first per tile costs `partial` bytes, written and read once. With T the time at full occupancy (compute and traffic together):

  one round (t < C)   compute * C/(t*s) falls, (base + s*partial)/BW rises; they meet at the root of partial*s^2 + base*s = compute*BW*C/t
  many rounds         s_max = what may be written before traffic takes longer than compute; R = floor(t*s_max/C) full rounds, s = floor(R*C/t)
                      makes eta = t*s/(R*C) >= 1 - t/(R*C)
  s                   of 1, the root rounded down and up, s_max and floor(R*C/t) the least within 1/2 % of the best under the
                      expression above (E25)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

ROUNDS = 8  # more full rounds than this gain less than 1/8 of a round


@dataclass(frozen=True)
class Reduction:
    """A grid of reductions: tiles, steps of each, seconds of compute at full occupancy, bytes moved without and per split, bandwidth."""

    tiles: int
    steps: int
    compute: float
    base_bytes: int
    partial_bytes: int
    bandwidth: float
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
        one_round = min(root, c // t)
        paid_for = (max(work, self.base_bytes) - self.base_bytes) // self.partial_bytes
        most = max(1, min(max(one_round, paid_for), self.steps, -(-ROUNDS * c // t)))
        fitted = t * most // c * c // t
        answers = {1, most, max(1, fitted), max(1, one_round), min(self.steps, max(1, min(root + 1, c // t)))}
        enough = 1.005 * min(map(self.seconds, answers))
        return self.parts(min(answer for answer in answers if self.seconds(answer) <= enough))
