"""Host times of a user's kernel, for `simgpu bench OP` and `simgpu bench exec`.

    operator.py         `simgpu bench OP`
    attention_table.py  `simgpu bench attention --table`
    exec.py             `simgpu bench exec FILE`
    profile.py          `--profile`: the time by opcode
    clock.py            a real GPU's clock
"""
