"""Times all candidates of a problem by the model and ranks them: `simgpu time --rank`.

    ranked.py      a candidate with its time, and the order of all
    tiles.py       tiles of an operator's problem
    objects.py     AITER's code objects for a product
    configs.py     configurations of a Triton autotuner
    launches.py    launches listed in a file
"""
