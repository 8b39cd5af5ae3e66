"""Code in the judge's child processes, beside a reference or a candidate, which use PyTorch.

    serving.py    answers requests, within limits
    tensors.py    tensors as arrays, and arguments of a module as JSON
    reference.py  the process of the reference: its inputs, and its results in float64
    candidate.py  the process of the candidate: its calls on the simulated GPU
    launches.py   the kernels that a call launched, and what they wrote
    operators.py  PyTorch's operators that a call used, with their bytes, FLOPs and time at the roofline
    integrity.py  functions that the candidate may not replace
"""
