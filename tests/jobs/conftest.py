from pathlib import Path

import pytest
from click.testing import CliRunner

from fedpact.cli.init import init


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example that `fedpact init` writes."""
    assert CliRunner().invoke(init, [str(tmp_path / "x")]).exit_code == 0
    return tmp_path / "x"
