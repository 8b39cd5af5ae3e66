"""What ends in words, and what checked mode finds.

    power.py            faulty results that must FAIL, faithful ones that must PASS
    fuzz.py             damaged code objects and random instructions, thrown at the simulator
    fuzz_cases.py       how they are made and launched
    fuzz_host_calls.py  calls of the host, damaged and drawn
    hostile.py          files made to cost more than they weigh
    corpus.py           a folder of compilers' kernels
    flips.py            what `why` names against flipped bits, backward against forward
    mutants.py          kernels with one wait, nop, barrier or address less right
    mutate.py           mutants run checked, and tallied
    fixes.py            lint before and after commits that changed code objects
"""
