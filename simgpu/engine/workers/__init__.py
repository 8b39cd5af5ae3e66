"""Host threads that execute a launch's workgroups.

    kept.py            resources that launches leave for the next ones
    borrowed.py        resources that one launch uses
    initial_state.py   the state that waves begin with
    desk.py            data that handlers and the loop look up for a worker
    fields.py          fields of checks in contexts, waves and allocations
    worker.py          one thread's state and counts, and the wave at which it stopped
    global_sync.py     ds_gws_* instructions, which synchronise waves of all workgroups
    team.py            runs the workers on threads; all have ended before it returns or raises
    scheduler.py       a worker's job as the loop's structures, and its counts
    scheduler_loop.py  the loop: workgroups to waves to handlers
    seeded_loop.py     the same in an order that a seed chooses, for weak mode
    running.py         the entry to the loop
"""
