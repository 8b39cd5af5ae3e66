"""LLVM IR to object files: by this process, and by others where there is much of it.

    object_file.py  LLVM's part, which is also the whole program of a helping process
    helpers.py      helping processes, and what they are given to do
    batch.py        functions that are compiled together
"""
