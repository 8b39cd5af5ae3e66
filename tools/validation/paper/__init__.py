"""Paper next to this repository: its numbers recomputed, its figures, its tests.

    entry.py       a number; a quoted cell is distinct from a derived one
    givens.py      the paper's assumptions: machines, sizes, measurements
    machine.py     numbers of the hardware model and of the MFMA layout
    gemm.py        of the tile derivation and of occupancy
    registers.py   of attention's registers and LDS (Table 2)
    operators.py   of convolution and softmax
    traffic.py     of attention's HBM traffic
    times.py       of attention's measured times (Table 3): laws that fit them
    families.py    families that the paper says are validated, and our test of each
    numbers.py     all numbers, in the paper's order
    figures.py     its figures as trees
    silicon/       its formulas on a GPU of another maker, through Triton

Imports point one way: entry <- givens <- the sections, families <- numbers.
"""
