"""Floats as elements of a ring of integers: exact arithmetic, by which two kernels are compared (docs/explanation/ring.md).

    elements.py    the element of a float's bits, and the bits of an element
    functions.py   functions that are no sums or products: exp2, inverses, roots, conversions
    ops.py         the operations of instruction bodies on elements, for any engine
    arrays.py      elements of numpy arrays
"""
