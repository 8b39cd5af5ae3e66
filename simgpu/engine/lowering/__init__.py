"""Makes host functions of instructions, which `program` puts into records.

    handlers.py  an instruction's handler: its key, its operands, its body, its checks
    turns.py     instructions after which the other waves of a workgroup have their turns
    ahead.py     handlers of common instructions, compiled before a kernel needs them
"""
