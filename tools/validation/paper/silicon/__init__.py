"""Theory of the paper on a GPU that nobody here tuned it for: tiles by formula, compiled by Triton, against all feasible ones.

    boards.py       descriptors of GPUs that Triton compiles for
    shapes.py       problems, drawn by a seed
    kernels.py      Triton kernels of GEMM, softmax and attention with free tiles
    candidates.py   the tiles that Triton can compile, and the formula's among them
    measure.py      compiles, times, and compares
    __main__.py     the command line

    python -m simgpu.tools.validation.paper.silicon --seed 8 --count 20

It needs PyTorch, Triton and a GPU.
"""
