"""What fedpact uses of Flower's inside, by name: an upgrade of flwr that moves any of it fails here, and says what."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedpact.engines import flower
from fedpact.engines.flower import coordinator, site

ROOT = Path(__file__).parents[2]
#: Flower promises these to its users.
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
#: All others that we import from, with what we take from each.
INTERNAL = {
    "flwr.common.config": {"parse_config_args"},
    "flwr.common.constant": {"ErrorCode", "SubStatus"},
    "flwr.common.serde": {"run_from_proto"},
    "flwr.proto.fleet_pb2": {"DeactivateNodeRequest"},
    "flwr.proto.runtime_pb2": {"AcquireTaskRequest", "PullTaskInputRequest", "PushTaskOutputRequest"},
    "flwr.supercore.constant": {"TaskType"},
    "flwr.supercore.heartbeat": {"HeartbeatSender", "make_task_heartbeat_fn_http"},
    "flwr.supercore.inflatable.inflatable_object": {
        "get_all_nested_objects",
        "get_object_tree",
        "iterate_object_tree",
        "no_object_id_recompute",
    },
    "flwr.supercore.inflatable.inflatable_utils": {"inflate_object_from_contents", "pull_objects", "push_objects"},
    "flwr.supercore.interceptors": {"RuntimeVersionHttpInterceptor", "SuperExecAuthHttpInterceptor"},
    "flwr.supercore.run": {"RunNotRunningException"},
    "flwr.supercore.runtime": {"RuntimeHttpClient"},
    "flwr.supercore.task_identity": {"TaskIdentity"},
    "flwr.superlink.grid": {"HttpGrid"},
    "flwr.supernode.fleet_http_client": {"FleetHttpClient"},
    "flwr.supernode.fleet_http_connection": {"http_request_response"},
    "flwr.supernode.node_auth_http_interceptor": {"NodeAuthHttpInterceptor"},
}


def imported() -> dict[str, set[str]]:
    """What the engine's files import from Flower, by module."""
    found: dict[str, set[str]] = {}
    for path in Path(flower.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(name.name.split(".")[0] == "flwr" for name in node.names), f"{path.name}: import from"
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
                found.setdefault(str(node.module), set()).update(name.name for name in node.names)
    return found


def test_what_we_import_of_flowers_inside_is_listed_here() -> None:
    assert {module: names for module, names in imported().items() if module not in PUBLIC} == INTERNAL


@pytest.mark.parametrize("module", INTERNAL)
def test_the_installed_flower_has_it(module: str) -> None:
    inside = importlib.import_module(module)
    assert [name for name in sorted(INTERNAL[module]) if not hasattr(inside, name)] == []


def test_the_installed_flower_is_one_that_fedpact_knows() -> None:
    """Otherwise a site becomes Flower's own SuperNode, which no test would notice."""
    assert site.KNOWN
    assert coordinator.KNOWN


def test_the_extra_has_an_upper_bound_that_the_installed_flower_keeps() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = [one for one in extras["flower"] if one.startswith("flwr")]
    bounds = re.fullmatch(r"flwr>=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    assert bounds is not None
    least, most = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
    major, minor = version("flwr").split(".")[:2]
    assert least <= (int(major), int(minor)) < most
