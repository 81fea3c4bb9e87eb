"""What left the owners is told in words, and nothing is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterator

import fedpact.jobs  # all messages are defined
from fedpact.federation.ledger import Traffic
from fedpact.federation.messages import Reply
from fedpact.report.what_left import WORDS, tell_what_left


def kinds(of: type[Reply] = Reply) -> Iterator[str]:
    for kind in of.__subclasses__():
        if kind.__module__.startswith(f"{fedpact.__name__}."):
            yield kind.__name__
            yield from kinds(kind)


def test_every_message_of_the_protocol_has_words() -> None:
    named = [message for messages in WORDS.values() for message in messages]
    assert sorted(named) == sorted(set(kinds()))


def test_what_is_unknown_is_named_and_what_is_masked_is_counted() -> None:
    traffic = Traffic(fields=("Moments.total (masked)", "Moments.count", "Mine.secret"))
    told = tell_what_left(traffic.fields, "ledger.json")
    assert "moments of its columns; Mine; nothing else (ledger.json" in told
    assert "of 1 of 3 fields" in told
