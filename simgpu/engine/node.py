"""GPUs whose launches may run at the same time and share memory, as those of one program do."""

from __future__ import annotations

import threading
from typing import Any


class DeviceNode:
    """Some devices. A thread that uses `shared` holds `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shared: dict[str, Any] = {}  # data of checks about launches that overlap
