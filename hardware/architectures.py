"""Architectures by the names of LLVM's targets, oldest first, and ranges of them."""

from __future__ import annotations

GFX908 = ("gfx908",)  # CDNA1
GFX90A = ("gfx90a",)  # CDNA2
GFX942 = ("gfx942",)  # CDNA3
GFX950 = ("gfx950",)  # CDNA4

TARGETS = (*GFX908, *GFX90A, *GFX942, *GFX950)  # all that are executed
BEFORE_GFX942 = (*GFX908, *GFX90A)
SINCE_GFX90A = (*GFX90A, *GFX942, *GFX950)
SINCE_GFX942 = (*GFX942, *GFX950)

# Architectures whose code is decoded and linted but not executed.
GFX12 = ("gfx1250",)  # CDNA5: wave32
