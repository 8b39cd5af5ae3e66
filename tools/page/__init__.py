"""One self-contained HTML page of a launch, a plan or a matrix instruction: what `--html FILE` writes.

    page.py       the page: its document packed behind one script and one stylesheet
    watching.py   launches that leave what a page shows of them
    launched.py   the document of launches, a part a kernel
    code.py       a kernel's instructions with what each cost, its source lines, its jumps
    launch_page.py  the page of what a verb launches
    lds.py        LDS accesses, what banks cost them, and layouts that cost nothing
    fragments.py  the operands of matrix instructions, element by element
    notations.py  the same layouts as Triton and CuTe write them

Imports point one way: notations <- fragments, code, lds <- watching <- launched, page <- launch_page. What draws it is `script/`,
JavaScript in the order of `page.SCRIPTS`, a file a view; `style.css` is its look.
"""
