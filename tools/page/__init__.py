"""One self-contained HTML page of a launch, a plan or a matrix instruction: what `--html FILE` writes.

    page.py         the page: its document packed behind one script and one stylesheet
    launch_page.py  the page of what a verb launches
    plan_page.py    the page of an operator's plan
    subjects.py     `simgpu.page`: the page of a run, a matrix instruction or a plan
    launched.py     the document of launches, a part a kernel
    watching.py     launches that leave what a page shows of them
    code.py         a kernel's instructions with what each cost, its source lines, its jumps
    lds.py          LDS accesses, what banks cost them, and layouts that cost nothing
    traffic.py      which bytes of each buffer were touched
    waves.py        the modelled timeline of a compute unit
    fragments.py    the operands of matrix instructions, element by element
    notations.py    the same layouts as Triton and CuTe write them
    plans.py        an operator's tree, its limits, the roofline

Imports point one way: notations <- fragments; code, lds <- watching <- traffic; all of them, waves <- launched; plans, page <-
launch_page, plan_page, subjects. What draws a page is `script/`, JavaScript in the order of `page.SCRIPTS`, a file a view;
`style.css` is its look.
"""
