"""`python -m simgpu`: the command, for where no script of that name is on the PATH."""

from __future__ import annotations

import runpy

runpy.run_module("simgpu.tools.cli", run_name="__main__")
