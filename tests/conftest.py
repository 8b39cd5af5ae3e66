"""What holds for all tests."""

from __future__ import annotations

import os

# pytest-xdist gives its workers COLUMNS=80, to which tables on a pipe would be set; tests that ask for a width set it themselves.
os.environ.pop("COLUMNS", None)
