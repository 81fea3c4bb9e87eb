"""Cases that the default command leaves to CI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Parameters of a test of which only these run by default; the others are marked slow."""
    return [value if value in quick else _slow(value) for value in values]


def _slow(value: Any) -> Any:
    parts = value if isinstance(value, tuple) else (value,)
    return pytest.param(*parts, marks=pytest.mark.slow)
