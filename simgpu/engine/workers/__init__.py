"""Host threads that execute a launch's workgroups.

    kept.py            resources that launches leave for the next ones
    borrowed.py        resources that one launch uses
    initial_state.py   the state that waves begin with
    desk.py            data that handlers and the loop look up for a worker
    fields.py          fields of checks in contexts, waves and allocations
    worker.py          one thread's state and counts, and the wave at which it stopped
    global_sync.py     meeting of waves of all workgroups: ds_gws_* instructions
    team.py            the workers together: begun, watched, and ended before anything is raised
    scheduler.py       a worker's job as the loop knows it
    scheduler_loop.py  the loop: workgroups to waves to handlers
    running.py         the entry to the loop
"""
