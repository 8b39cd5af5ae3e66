"""How the project is used: the `simgpu` command, a file a verb, and benchmarks."""
