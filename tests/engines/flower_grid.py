"""A Flower grid in memory: nodes run the real client app, messages are Flower's own, and no SuperLink is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

from fedpact.engines.flower import engine as flower
from fedpact.engines.flower import site as flower_site

UNAVAILABLE = 5  # Flower's error code for a node without heartbeats


def echo(name: str) -> Callable[[dict[str, Any]], Callable[[bytes], bytes]]:
    return lambda config: lambda data: f"{name}: ".encode() + data


@dataclass(frozen=True)
class Node:
    """A site as the SuperLink sees it: `app` None never answers, `activation` changes with a restart."""

    name: str
    app: ClientApp | None
    activation: str = "first"
    config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str) -> Node:
        return cls(name, flower.client_app(echo(name)))


class Grid:
    """What of Flower's grid the fleet uses."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = dict(enumerate(nodes, start=100))
        self.got: list[tuple[str, str]] = []  # name, type of message
        self.broken = False
        self._sent: dict[str, tuple[Message, str]] = {}  # and the activation of the node that took it

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=i, last_activated_at=node.activation) for i, node in self.nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        if self.broken:
            raise ConnectionError("no SuperLink")
        keys = []
        for message in messages:
            key = message.object_id
            message.metadata.__dict__["_message_id"] = key
            node = self.nodes.get(message.metadata.dst_node_id)
            if node is not None:
                self._sent[key] = (message, node.activation)
                self.got.append((node.name, message.metadata.message_type))
            keys.append("" if node is None else key)
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[Message]:
        replies = []
        for key in keys:
            message, activation = self._sent[key]
            node = self.nodes.get(message.metadata.dst_node_id)
            if node is None:
                replies.append(Message(Error(UNAVAILABLE, "Node Unavailable"), reply_to=message))
            elif node.app is not None and node.activation == activation:
                config: dict[str, Any] = {"name": node.name, **node.config} if node.name else {}
                context = Context(1, message.metadata.dst_node_id, config, RecordDict(), {})
                replies.append(node.app(message, context))
        return replies


@contextmanager
def impatient() -> Iterator[None]:
    """Flower stamps messages with the task it runs; nobody waits for long, nor prints."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        patch.setattr(flower_site, "SHORTEST", 0.005)
        patch.setattr(flower_site, "speak", lambda *_: None)
        patch.setattr(flower, "LOOK", 0.05)
        patch.setattr(flower, "GRACE", 0.1)
        yield
