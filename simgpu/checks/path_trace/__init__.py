"""Traces each wave of a workgroup in program order: jumps, cache lines of memory accesses, clocks of LDS accesses.

    tally.py     a wave's stream, and how far the wave has come
    patterns.py  clocks and lines of accesses by their addresses, computed once for accesses that differ by a distance only
    accesses.py  accesses to LDS and memory
    check.py     the check: its hooks

This check is not one of `CHECKS`: `simgpu.sampling` uses it to run sampled workgroups, one at a time. Code between two jumps is
fixed, so only jumps and accesses are recorded, and all other handlers are those of plain mode.

A wave's stream ends when it is full or after `PathBlock.keep` records. Later instructions are only counted. A stream holds u32
words: kind << 30 | record, then by kind

    JUMP    the target record
    LDS     clocks for which the access occupies the banks, in bytes as below
    MEMORY  clocks of address coalescing and lines, in bytes as below; then that many numbers of 64-byte lines, as addresses
            count them
    END     nothing: the wave's last instruction

The bytes of the word after LDS and MEMORY, the highest first: clocks; clocks of an access of as many lanes without bank
conflicts, or to consecutive addresses; its lines; lines (both 0 for LDS). The highest bit is set if all lanes want the same
address in memory. A scalar access has no clocks.
"""
