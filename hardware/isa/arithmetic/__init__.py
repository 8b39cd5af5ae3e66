"""Arithmetic that instructions share, in the operations of `hardware.isa.lane`.

    vectors.py       operands of several elements
    integers.py      saturation, carries, bit fields
    floats.py        minimum, maximum, ldexp, frexp, fract, packing
    small_floats.py  fp8, bf8, fp6, bf6, fp4
    dots.py          V_DOT2, V_DOT4, V_DOT8
    division.py      V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP
    approx.py        transcendental functions, reciprocals, roots
    two_over_pi.py   the bits of 2/pi for V_TRIG_PREOP_F64
    atomics.py       the new value of an atomic, from the old one
"""
