"""The host threads that execute a launch's workgroups.

    kept.py            what launches leave for the next ones
    borrowed.py        what one launch uses of it
    initial_state.py   the state that waves begin with
    desk.py            what handlers and the loop look up for a worker
    fields.py          fields that checks have in contexts, waves and allocations
    worker.py          one thread's state and counts, and the wave at which it stopped
    global_sync.py     where waves of all workgroups meet: ds_gws_* instructions
    team.py            the workers together: begun, watched, and ended before anything is raised
    scheduler.py       a worker's job as the loop knows it
    scheduler_loop.py  the loop: workgroups to waves to handlers
    running.py         the way into the loop
"""
