"""The model of time against published measurements: `simgpu validate-time`.

    rows.py     the tables of measurements, as they are read and split
    aiter.py    AITER's shipped code objects: their arguments and grids
"""
