"""Public bugs of GPU kernels, each as a small kernel before and after its repair.

    exhibit.py    Exhibit: a kernel as a diff, its launch, its findings

An exhibit is three files in `exhibits/`: NAME.before.s and NAME.after.s, the kernel's instructions, and NAME.toml, whose keys are
the fields of Exhibit. Arrays are numpy expressions.
"""
