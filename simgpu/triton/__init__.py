"""Triton kernels on a simulated AMD GPU: `with simgpu.triton.device("mi300x", check=True): kernel[grid](...)`.

Needs the optional extra `triton`; nothing else in simgpu imports it. See docs/triton.md.
"""

from __future__ import annotations

from simgpu.triton.context import device
from simgpu.triton.model import ModelledTime
from simgpu.triton.report import LineReport, Report, report
from simgpu.triton.session import KernelFinding, Launched, Session

__all__ = ["KernelFinding", "Launched", "LineReport", "ModelledTime", "Report", "Session", "device", "report"]
