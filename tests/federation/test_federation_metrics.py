"""What a site tells whoever runs it, on this machine only: how much, never what."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from raising import raises_code

from fedpact.errors import CODES
from fedpact.federation import Order, Site, metrics
from fedpact.federation.owner import confirm
from fedpact.federation.wire import dumps, name_of, to_tree

#: A line of Prometheus' text format: a comment, or a name, labels and a number.
LINE = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+]+')


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server of counts that begin at zero."""
    from fedpact.federation import remote

    fresh = metrics.Metrics()
    monkeypatch.setattr(metrics, "METRICS", fresh)
    monkeypatch.setattr(remote, "METRICS", fresh)
    server = metrics.serve_metrics(0)
    yield server.server_port
    server.shutdown()
    server.server_close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def order(owner: str, run: str, round: int) -> bytes:
    content = {"owner": owner, "step": name_of(confirm), "order": to_tree(Order(run=run, round=round)), "task": None}
    return dumps(content)


def test_orders_refusals_bytes_and_runs_are_counted(port: int) -> None:
    before = time.time()
    assert numbers(get(port, "/metrics")[1])["fedpact_site_orders_total"] == 0
    site = Site("Ada Lovelace", 1.0)
    replies = [
        site.handle(order("Ada Lovelace", "first", 1)),
        site.handle(order("Ada Lovelace", "first", 2)),
        site.handle(order("Ada Lovelace", "second", 1)),
        site.handle(order("somebody else", "first", 3)),
        site.handle(b"nonsense"),
    ]
    status, text = get(port, "/metrics")
    assert status == 200
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
    found = numbers(text)
    assert found["fedpact_site_up"] == 1
    assert found["fedpact_site_orders_total"] == 5
    assert found['fedpact_site_refused_total{code="FP-OWNER-008"}'] == 1
    assert found['fedpact_site_refused_total{code="FP-WIRE-302"}'] == 1
    assert found["fedpact_site_bytes_out_total"] == sum(map(len, replies))
    assert found["fedpact_site_runs_total"] == 2
    assert found["fedpact_site_order_seconds_total"] > 0
    assert before - 1 <= found["fedpact_site_last_order_timestamp_seconds"] <= time.time() + 1
    assert "Ada" not in text
    assert set(re.findall(r'code="([^"]*)"', text)) <= set(CODES)


def test_a_site_that_hears_nothing_of_its_superlink_is_unhealthy(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    monkeypatch.setattr(metrics, "SILENCE", 0.0)
    assert get(port, "/healthz")[0] == 503
    assert numbers(get(port, "/metrics")[1])["fedpact_site_up"] == 0
    metrics.METRICS.busy = True  # a long step
    assert get(port, "/healthz")[0] == 200


def test_nothing_else_is_served_and_nobody_else_reaches_it(port: int) -> None:
    assert get(port, "/")[0] == 404
    assert get(port, "/../etc/passwd")[0] == 404
    with socket.socket() as probe:  # another address of this machine
        probe.settimeout(5)
        assert probe.connect_ex(("127.0.0.2", port)) != 0


def test_a_port_that_is_taken_is_an_error(port: int) -> None:
    with raises_code("FP-OPTION-670", "", str(port)):
        metrics.serve_metrics(port)
    with raises_code("FP-OPTION-670", "", "70000"):
        metrics.serve_metrics(70000)
