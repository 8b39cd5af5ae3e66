"""Shared by all verbs: output, errors, options of a launch, verdicts.

    errors.py     UsageError and KernelFailed: status 2, status 1
    parser.py     the command line's parser, the examples of its help
    sheet.py      a table that fits any width
    console.py    tables, text and JSON on stdout, progress on stderr
    outputs.py    files that verbs write
    completion.py  completion scripts of shells
    processes.py  new processes: for measurements, for a real GPU
    launching.py  a launch: device options, errors, a run's output, checked mode
    seeds.py      seeds of weak and late mode, and the search for one with another result
    arrays.py     generated arrays: types and fills by name
    inputs.py     random operands by distribution
    verdict.py    a result against float64: its bound, and a faithful kernel's error
    faithful.py   whether an error looks like a faithful kernel's
    agreement.py  a real GPU's result against the simulator's
    source_files.py  lines of the sources that code comes from
    sarif.py      findings for code review tools
    known_findings.py  findings that a file suppresses
    hiprtc.py     HIP source to code objects, for programs that compile while they run and for files of kernels
"""
