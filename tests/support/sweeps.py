"""Sweeps through tables whose rows take less time than pytest takes for a test: one test has them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def swept(names: str, rows: Iterable[Any], ids: Callable[[Any], object] = str, parts: int = 1) -> Callable[[Test], Test]:
    """Makes one test of all rows; used like `pytest.mark.parametrize`. A failure names its row and the others that fail.

    The function may take fixtures, which its rows share, and must not skip. parts: the number of tests that share the rows, if
    these take long; a run of the whole suite takes a third of such tests.

    >>> @swept("n", [1, 2, 3])
    ... def test_small(n): assert n < 2
    >>> try: test_small()
    ... except AssertionError as error: print(error.__notes__)
    ['in row 2', '2 of 3 rows fail: 2, 3']
    """
    given, table = [name.strip() for name in names.split(",")], list(rows)

    def decorate(function: Test) -> Test:
        def test(part: int = 0, **fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            taken = table[part::parts]
            for row in taken:
                values = row if len(given) > 1 else (row,)
                try:
                    function(**dict(zip(given, values, strict=True)), **fixtures)
                except Exception as error:
                    failed.append((" ".join(str(ids(value)) for value in values), error))
            if failed:
                name, first = failed[0]
                first.add_note(f"in row {name}")
                first.add_note(f"{len(failed)} of {len(taken)} rows fail: {', '.join(name for name, _ in failed[:20])}")
                raise first

        signature = inspect.signature(function)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in given]
        if parts > 1:
            kept.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
        test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
        assert len(table) >= parts, "a sweep without rows tests nothing"
        return pytest.mark.parametrize("part", range(parts))(test) if parts > 1 else test

    return decorate
