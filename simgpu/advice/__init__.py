"""Finds what to change in a kernel first: costs by source line, their causes, and the launch's time without each cause.

    costs.py     what each instruction of a timed launch costs, joined by source line
    chains.py    loads whose address depends on their own result
    causes.py    why lines wait, and what the model leaves out to answer how long the launch takes without that
    work.py      the same for computation, barriers, occupancy and dispatch
    barriers.py  barriers that order nothing, by a checked launch
    profile.py   `profile`: the causes by what they cost, the most expensive first
    counters.py  figures of the model by the names of hardware counters

Imports point one way: costs, chains <- causes <- work; work, barriers <- profile; costs <- counters.
"""
