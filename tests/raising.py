"""Errors are recognised by their code and the facts they name, not by their English."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedpact.errors import class_of


@contextmanager
def raises_code(code: str, *facts: str) -> Iterator[None]:
    """Inside, an error of this code is raised; its message begins with the first fact and holds the others."""
    with pytest.raises(class_of(code)) as caught:
        yield
    said = str(caught.value)
    assert caught.value.code == code, said
    assert said.startswith(facts[:1] or ""), said
    assert [fact for fact in facts if fact not in said] == [], said
