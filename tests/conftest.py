from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the real data sets: FEDPACT_DATA, or ../shared/data beside the project."""
    named = os.environ.get("FEDPACT_DATA")
    folder = Path(named) if named else Path(__file__).parents[1].parent / "shared" / "data"
    if not (folder / "adult.data").is_file():
        pytest.skip(f"no data sets in {folder}; name their folder by FEDPACT_DATA")
    return folder
