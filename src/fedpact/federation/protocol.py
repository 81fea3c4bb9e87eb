"""What a coordinator and its sites must have in common: the language of their messages, not the version of fedpact."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from fedpact.errors import OptionError
from fedpact.federation.wire import STEPS

#: The language of messages. Raise it when an order, a reply, a task or what surrounds them changes its fields or its
#: meaning; a new step needs no new number, since a site says which steps it has.
PROTOCOL = 3


@dataclass(frozen=True)
class Hello:
    """What a site says when it is greeted.

    version:  of its fedpact, for people to read
    protocol: the language it speaks; 0: it is older than these numbers
    steps:    what it can be asked to run, by name
    policy:   digest of the rules it enforces; empty when it has none
    """

    name: str
    version: str
    protocol: int = 0
    steps: frozenset[str] = frozenset()
    policy: str = ""

    @classmethod
    def of(cls, name: str, policy: str = "") -> Hello:
        """What this process says."""
        return cls(name, version("fedpact"), PROTOCOL, frozenset(STEPS), policy)

    def check(self) -> None:
        """OptionError, which says who must upgrade, when the site speaks another language than this coordinator."""
        if self.protocol == PROTOCOL:
            return
        late = f"upgrade fedpact at {self.name}"
        if self.protocol > PROTOCOL:
            late = "upgrade fedpact at the coordinator"
        raise OptionError(
            f"{self.name}: its fedpact {self.version} speaks protocol {self.protocol}, the coordinator's "
            f"{version('fedpact')} speaks {PROTOCOL}; {late}",
            code="FP-OPTION-660",
        )
