"""Debugger for people: a prompt in the terminal, answers as trees, and an adapter for editors.

    views.py      the prompt's output: stops, registers, tiles, LDS, memory
    values.py     variables of the source as text
    tree.py       where a value came from, as a tree of lines
    commands.py   the base of all commands, and how they are read
    running.py    the commands that run the workgroup and set breakpoints
    looking.py    the commands that show registers, memory, and where values came from
    prompt.py     the prompt: all commands, at a terminal or from a list
    messages.py   the Debug Adapter Protocol's messages
    adapter.py    the protocol's requests on the debugger
    extension.py  the extension for VS Code
    questions.py  the element that `simgpu why` explains, and the workgroup that writes it
"""
