"""A tiled product's accesses to its matrices in all launches: each element as often as the plan says.

    needed.py    instructions that addresses, masks and branches depend on
    run.py       a kernel's code on terms, to its accesses and loops
    forms.py     sums with a coefficient for each work-item, and conditions
    evaluate.py  terms as forms
    claims.py    the questions about one matrix
    judge.py     the verdict on a kernel
"""
