from __future__ import annotations

import os
from pathlib import Path

# Two test processes on two cores: more BLAS threads only get into each other's way. Before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the real data sets: FEDPACT_DATA, or ../shared/data beside the project."""
    named = os.environ.get("FEDPACT_DATA")
    folder = Path(named) if named else Path(__file__).parents[1].parent / "shared" / "data"
    if not (folder / "adult.data").is_file():
        pytest.skip(f"no data sets in {folder}; name their folder by FEDPACT_DATA")
    return folder
