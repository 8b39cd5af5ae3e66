"""Settings for all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile

from hypothesis import HealthCheck, settings

# pytest-xdist gives its workers COLUMNS=80, which would set the width of tables on a pipe. Tests that need a width set it
# themselves.
os.environ.pop("COLUMNS", None)

# Tests start Python more than a thousand times. If its bytecode must not be in the tree, it goes to a folder of this session.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = tempfile.mkdtemp(prefix="simgpu-bytecode-")
    sys.dont_write_bytecode = False
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)

# No test depends on the speed of a loaded machine: an example has no deadline.
settings.register_profile("simgpu", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simgpu")
