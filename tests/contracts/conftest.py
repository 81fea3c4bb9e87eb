from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fedpact.engines import Ray


@pytest.fixture(scope="session")
def ray_actors(ray_cluster: str) -> Iterator[Any]:
    """Three processes, for one owner each, started once: that takes longer than a solve."""
    with Ray(actors=3).session() as session:
        yield session
