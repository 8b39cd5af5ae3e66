"""A kernel's accesses in all launches: in bounds and without races, or a launch that shows otherwise.

    nest.py      blocks and loops
    log.py       all accesses of a lane
    integers.py  bit-vectors as integers
    facts.py     facts about all rounds of loops
    sizes.py     expressions of a user, such as 4*n
    launches.py  grids, blocks and arguments as symbols
    prover.py    questions about all launches
    rounds.py    a loop's registers in any round
    run.py       a kernel's code on terms, with loops of any number of rounds
    waves.py     two waves of a launch
    claims.py    claims about accesses and their proofs
    search.py    a launch that shows a fault, confirmed by checked mode
    judge.py     the verdict
"""
