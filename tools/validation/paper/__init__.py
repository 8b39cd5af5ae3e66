"""The paper beside this repository: its numbers recomputed, its figures, what it tests.

    entry.py       a number, and what tells a quoted cell from a derived one
    givens.py      what the paper states without deriving it: machines, sizes, measurements
    machine.py     numbers of the hardware model and of the MFMA layout
    gemm.py        of the tile derivation and of occupancy
    registers.py   of attention's registers and LDS (Table 2)
    operators.py   of convolution and softmax
    traffic.py     of attention's HBM traffic
    times.py       of attention's measured times (Table 3): what fits them
    families.py    what the paper says is validated, and which of our tests does it
    numbers.py     all of them, in the paper's order
    figures.py     its figures as trees

Imports point one way: entry <- givens <- the sections, families <- numbers.
"""
