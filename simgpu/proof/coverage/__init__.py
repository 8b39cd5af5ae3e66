"""A tiled product's accesses to its matrices in all launches: each element as often as the plan says.

    needed.py    instructions that addresses, masks and branches depend on
    run.py       a kernel's code on terms, to its accesses and loops
    forms.py     sums with a coefficient for each work-item, and conditions
    evaluate.py  terms as forms
    claims.py    the questions about one matrix
    values.py    what registers and LDS hold: numbers, elements, sums of products
    pieces.py    instructions that move parts of words
    words.py     what loads bring
    integers.py  integer instructions on sums
    masks.py     lane masks of comparisons
    lds.py       where words of LDS are
    multiply.py  a matrix instruction on elements
    epilogue.py  operands of the epilogue on sums
    machine.py   a workgroup's instructions on these values
    products.py  a workgroup's states until they repeat: each product added once
    judge.py     the verdict on a kernel
    parts.py     a second kernel that adds the parts of a split K
"""
