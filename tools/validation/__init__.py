"""The model of time against published measurements: `simgpu validate-time`.

    rows.py     the tables of measurements, as they are read and split
    tile_kernel.py  a tiled matrix product of which only parameters are known
    tensile.py  rocBLAS's kernels, by what their names describe
    measured.py  microbenchmarks, as the model runs them
    judge.py    rows held against the model, the table of errors
    aiter.py    AITER's shipped code objects: their arguments and grids
"""
