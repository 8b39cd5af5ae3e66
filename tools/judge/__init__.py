"""Judges a generated kernel against a reference: right or wrong, honest or not, and how fast.

    kinds.py       the kinds of reasons: rejections and notes
    verdict.py     trials, reasons, times and the verdict, as JSON and as text
    tolerance.py   results against float64, with the error that the promised type allows
    hostile.py     inputs made hostile, element by element
    sizes.py       sizes drawn from ranges, and expressions of sizes
    signature.py   the arguments and launches of a HIP candidate, in words
    hip_form.py    HIP kernels against a Python reference of numpy
    torch_form.py  PyTorch modules with Triton kernels against a PyTorch module
    messages.py    messages between the judge and its child processes
    process.py     a child process with limits of time and memory
    child/         code that runs in these processes, beside a candidate or a reference

Nothing of a candidate runs in the judge's process but simulated kernels.
"""
