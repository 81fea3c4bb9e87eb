"""Asynchronous fair-vfl over the Flower fleet, on a grid in memory: one order under way at each party, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flower_grid import Grid, Node, impatient
from flwr.app import Message
from slow_parties import CUTS, problem

import fedpact as fp
from fedpact.engines.flower import engine as flower
from fedpact.federation import Site

#: Orders of another party that the slow one is behind by, at each of its own.
BEHIND = 8


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with impatient():
        yield


class Slow(Grid):
    """A grid on which the replies of one site come when another has answered so many more orders."""

    def __init__(self, slow: str, *nodes: Node) -> None:
        super().__init__(*nodes)
        self.slow, self.over = slow, False
        self.answered: dict[str, int] = {}
        self.most_under_way: dict[str, int] = {}
        self._since: dict[str, int] = {}

    def pull_messages(self, keys: Iterable[str]) -> list[Message]:
        asked = [key for key in keys if not self._held(key)]
        waiting: dict[str, int] = {}
        for key in keys:
            waiting[self._name(key)] = waiting.get(self._name(key), 0) + 1
        for name, number in waiting.items():
            self.most_under_way[name] = max(number, self.most_under_way.get(name, 0))
        replies = super().pull_messages(asked)
        for reply in replies:
            key = reply.metadata.reply_to_message_id
            if self._is_order(key):
                self.answered[self._name(key)] = self.answered.get(self._name(key), 0) + 1
        return replies

    def _name(self, key: str) -> str:
        return self.nodes[self._sent[key][0].metadata.dst_node_id].name

    def _is_order(self, key: str) -> bool:
        return bool(self._sent[key][0].metadata.message_type == flower.ORDER)

    def _held(self, key: str) -> bool:
        if self.over or not self._is_order(key) or self._name(key) != self.slow:
            return False
        if self.slow not in self.answered:  # the first exchange, to which all answer before there is work
            return False
        others = min(self.answered.get(name, 0) for name in CUTS if name != self.slow)
        return others < self._since.setdefault(key, others) + BEHIND


def serving(party: Any, folder: Path) -> Callable[[dict[str, Any]], Callable[[bytes], bytes]]:
    return lambda config: Site(party.name, party, folder / party.name).handle


def test_a_slow_site_holds_up_nobody_and_each_has_one_order_at_a_time(tmp_path: Path) -> None:
    """Where the coordinator waited for the slow site, the others would get no order, and it would wait for ever."""
    asked = problem()
    nodes = [Node(party.name, flower.client_app(serving(party, tmp_path))) for party in asked.shares]
    grid = Slow("shop", *nodes)

    seen: dict[str, int] = {}

    def watch(progress: Any) -> None:
        if progress.rounds >= 60 and not grid.over:
            seen.update(grid.answered)
            grid.over = True

    engine = flower.Flower(grid, patience=600.0)  # type: ignore[arg-type]
    options: dict[str, Any] = {"max_rounds": 66, "tol": 1e-9, "secure_sum": False, "callbacks": [watch]}
    found = fp.solve(asked, "fair-vfl", asynchronous=True, engine=engine, **options)
    assert found.status == "max_rounds"
    assert min(seen["bank"], seen["clinic"]) >= 3 * seen["shop"] > 0
    assert grid.most_under_way == dict.fromkeys(CUTS, 1)
