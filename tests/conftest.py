from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Two test processes on two cores: more BLAS threads only get into each other's way. Before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pytest

import fedpact


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the real data sets: FEDPACT_DATA, or ../shared/data beside the project."""
    named = os.environ.get("FEDPACT_DATA")
    folder = Path(named) if named else Path(__file__).parents[1].parent / "shared" / "data"
    if not (folder / "adult.data").is_file():
        pytest.skip(f"no data sets in {folder}; name their folder by FEDPACT_DATA")
    return folder


@pytest.fixture(autouse=True)
def _own_numbers(request: pytest.FixtureRequest) -> None:
    """A test draws the same random numbers whichever tests ran before it in its process."""
    for name in ("rng", "RNG"):
        generator = getattr(request.module, name, None)
        if generator is not None:
            start = request.module.__dict__.setdefault(f"_start_of_{name}", generator.bit_generator.state)
            generator.bit_generator.state = start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that `fedpact init` writes: a job, and the tables of three hospitals."""
    from click.testing import CliRunner

    from fedpact.cli.init import init

    assert CliRunner().invoke(init, [str(tmp_path / "x")]).exit_code == 0
    return tmp_path / "x"


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """A Ray of two processors that every engine finds running, started once a session; its address."""
    ray = pytest.importorskip("ray", reason="the package ray is not installed; pip install '.[ray]'")
    tests = Path(__file__).parent
    folders = [tests, *(tests / room for room in ("contracts", "engines", "federation", "solvers"))]
    # functions of the tests are imported over there
    path = [*map(str, folders), str(Path(fedpact.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    found = {
        "env_vars": {"PYTHONPATH": os.pathsep.join(path)},
        "worker_process_setup_hook": "counting.start_worker",
    }
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=found)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="session")
def ray_actors(ray_cluster: str) -> Iterator[Any]:
    """Three processes, for one owner each, started once: that takes longer than a solve."""
    from fedpact.engines import Ray

    with Ray(actors=3).session() as session:
        yield session
