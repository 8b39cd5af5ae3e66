"""The debugger for people: a prompt in the terminal, answers as trees, and an adapter for editors.

    views.py      what the prompt prints: stops, registers, tiles, LDS, memory
    tree.py       where a value came from, as a tree of lines
    commands.py   what every command has, and how they are read
    running.py    the commands that run the workgroup and set breakpoints
    looking.py    the commands that show registers, memory, and where values came from
    prompt.py     the prompt: all of them, at a terminal or one after the other
    messages.py   the Debug Adapter Protocol's messages
    adapter.py    the protocol's requests on the debugger
    questions.py  which element `simgpu why` is asked about, and which workgroup writes it
"""
