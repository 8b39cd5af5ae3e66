"""The debugger for people: a prompt in the terminal, answers as trees, and an adapter for editors.

    subject.py    what is debugged: the kernel of a file or of an operator, with its arguments
    views.py      what the prompt prints: stops, registers, tiles, LDS, memory
    tree.py       where a value came from, as a tree of lines
    prompt.py     the prompt and its commands
    messages.py   the Debug Adapter Protocol's messages
    adapter.py    the protocol's requests on the debugger
    questions.py  which element `simgpu why` is asked about, and which workgroup writes it
"""
