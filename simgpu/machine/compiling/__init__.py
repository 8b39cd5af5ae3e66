"""LLVM IR to object files, by this process and, if there is much of it, by others.

    object_file.py  LLVM's part, which is also the whole program of a helper process
    helpers.py      helper processes, and the queue that feeds them
    batch.py        functions that are compiled together
"""
