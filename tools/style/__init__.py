"""Counts of the project's own prose. The wheel leaves them out.

    prose.py    long sentences and habit words of pages and sources, with limits
"""
