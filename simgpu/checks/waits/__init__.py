"""Missing waits and wait states.

    automaton.py     states of operations in flight, and transitions over straight-line code
    paths.py         runs the automaton along the path of each wave
    surplus.py       waits and nops that ask for more than is needed
    in_flight.py     counts operations issued and complete at run time
    late_arrival.py  late mode: operations complete at waits, or earlier by a seed
"""
