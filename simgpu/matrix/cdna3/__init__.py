"""Matrix sums of CDNA3 and later (gfx942, gfx950) for f16, bf16, xf32 and narrower elements.

    general.py    the sum for any operands: NaN, infinities, exponents of any size
    scales.py     E8M0 scales of blocks of 32 k
    operand.py    A or B for the fast path: exponents, and elements as integers
    exponents.py  the largest exponent of a sum's products, 64 lanes at a time
    whole.py      sums in which nothing is cut off, as sums of integers
    rounding.py   the rounding of the sum and C to D
    fast.py       the fast path, for exponents in the range where they nearly always are
"""
