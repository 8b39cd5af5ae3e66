"""What others publish beside what we say: measured times for `simgpu validate-time`, the paper for `simgpu paper`.

    rows.py     the tables of measurements, as they are read and split
    tile_loop.py  the instructions of a tiled matrix product of which only parameters are known
    tile_kernel.py  what such a product takes
    tensile.py  rocBLAS's kernels, by what their names describe
    measured.py  microbenchmarks, as the model runs them
    own_kernels.py  stencils, norms, transposes and streams, by kernels of ours
    kernels.cl  these
    judge.py    rows held against the model, the table of errors
    paper/      the paper's numbers, figures and tests beside ours
    aiter.py    AITER's shipped code objects: their arguments and grids
    repairs.py  what lint says of a repository's code objects: before and after repairs, and today
    reports.py  a report of one, for who maintains it
"""
