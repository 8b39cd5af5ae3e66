"""What a computation moves and executes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """flops: useful, a multiply-add is two. hbm_bytes: every array element once. global_bytes: with re-reads, as blocks request
    them.

    lds_write_bytes, lds_read_bytes: staging, and what waves read back. atoms: matrix instructions on valid data.
    """

    flops: int = 0
    hbm_bytes: int = 0
    global_bytes: int = 0
    lds_write_bytes: int = 0
    lds_read_bytes: int = 0
    atoms: int = 0
