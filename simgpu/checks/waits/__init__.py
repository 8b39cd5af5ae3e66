"""Missing waits and wait states.

    automaton.py     states of operations in flight, steps over instructions
    paths.py         the automaton along the path of each wave
    surplus.py       waits and nops that ask for more than is needed
    in_flight.py     operations issued and complete, counted at run time
    late_arrival.py  loads that arrive only at their waits: the adversarial order
"""
