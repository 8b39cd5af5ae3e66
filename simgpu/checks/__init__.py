"""Checked mode: what a kernel gets away with here and not on the hardware.

`suite` lists the checks; only a checked launch imports it, because plain mode uses none of it.
"""
