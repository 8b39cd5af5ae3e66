"""Self-contained HTML page of a launch, a plan or a matrix instruction, for `--html FILE`.

    page.py         the page: its document packed with one script and one stylesheet
    launch_page.py  the page of a verb's launches
    plan_page.py    the page of an operator's plan
    subjects.py     `simgpu.page`: the page of a run, a matrix instruction or a plan
    launched.py     the document of launches, one part per kernel
    watching.py     launches that record the page's data
    code.py         a kernel's instructions with the cost of each, its source lines, its jumps
    lds.py          LDS accesses, their bank conflicts, and layouts without any
    traffic.py      which bytes of each buffer were touched
    waves.py        the modelled timeline of a compute unit
    fragments.py    the operands of matrix instructions, element by element
    notations.py    the same layouts in Triton's and CuTe's notation
    side_by_side.py  one kernel compiled twice, instruction beside instruction
    plans.py        an operator's tree, its limits, the roofline

Imports point one way: notations <- fragments; code, lds <- watching <- traffic; all of them, waves <- launched; side_by_side <-
page; plans, page <- launch_page, plan_page, subjects. `script/` draws a page: JavaScript in the order of `page.SCRIPTS`, one
file per view. `style.css` styles it.
"""
