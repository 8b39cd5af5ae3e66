"""Instructions as functions of the host that `program` puts into records.

    handlers.py  an instruction's handler: its key, its operands, its body, its checks
    turns.py     behind which instructions the other waves of a workgroup have their turns
"""
