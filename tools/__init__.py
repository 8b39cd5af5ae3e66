"""Command `simgpu`, and tools built on the other folders.

    pytest_kernels.py  the fixture `simgpu_load` for tests of kernels in files
    cli.py            the command: parses, dispatches to a verb, turns errors into a line and a status
    verbs/            the verbs, one file each
    shared/           used by every verb: output, errors, options of a launch, verdicts
    cases/            launches: the table of operators, kernels of files, their inputs and times
    tables/           tables about a kernel: limits, resources, schedules, traffic
    cost/             costs of tiles: the model that judges the closed formulas
    page/             one HTML page of a launch, a plan or a matrix instruction
    museum/           public bugs as small kernels, before and after
    litmus/           litmus tests of the memory model, compiled, and their final states
    ranking/          candidates of a problem in the order of their modelled times
    validation/       published figures next to ours: measurements, the paper's numbers
    matrix/           one matrix instruction: owners of elements, probes, tiles of registers
    bench/            host times of a user's kernel
    robustness/       fuzzing, and how much checked mode finds (not in the wheel)
    benchmarks/       how fast simgpu itself is, one file per benchmark (not in the wheel)
    style/            counts of the project's own prose (not in the wheel)
    torch/            a pretended GPU for PyTorch on the host; `pytest --simgpu TARGET`
    judge/            a generated kernel against a reference
    debug/            the debugger's prompt and its adapter for editors

Imports point one way: shared <- matrix, tables, cost, museum, litmus, torch <- page <- cases <- validation, debug, bench, judge
<- robustness <- benchmarks <- verbs <- cli.
"""
