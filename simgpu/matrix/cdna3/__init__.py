"""The sums of CDNA3 and later (gfx942, gfx950) of f16, bf16, xf32 and narrower elements.

    general.py    for any operands: NaN, infinities, exponents of any size
    scales.py     E8M0 scales of blocks of 32 k
    operand.py    the fast path's view of A or B: in range? which exponents? small integers?
    exponents.py  the largest exponent of a sum's products, 64 lanes at a time
    rounding.py   the sum and C, rounded to D
    fast.py       the fast path, for exponents in the range where they nearly always are
"""
