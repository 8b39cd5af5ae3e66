"""From code to records: each instruction with its handler.

    program.py   the records of one code region, and what of it is lowered
    handlers.py  an instruction's handler: its key, its operands, its body, its checks
    turns.py     behind which instructions the other waves of a workgroup have their turns
"""
