"""What holds for all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile

from hypothesis import HealthCheck, settings

# pytest-xdist gives its workers COLUMNS=80, to which tables on a pipe would be set; tests that ask for a width set it themselves.
os.environ.pop("COLUMNS", None)

# Tests start Python more than a thousand times: where its bytecode is not to lie in the tree, it lies in a folder of this session.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = tempfile.mkdtemp(prefix="simgpu-bytecode-")
    sys.dont_write_bytecode = False
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)

# No test depends on how fast a loaded machine is: an example may take as long as it likes.
settings.register_profile("simgpu", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simgpu")
