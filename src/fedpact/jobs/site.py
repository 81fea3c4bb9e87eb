"""A site as its `site.toml` describes it: its table, its key, its policy, and the log of what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpact.alignment import People
from fedpact.errors import OptionError
from fedpact.federation import Site
from fedpact.federation.audit import AuditLog
from fedpact.federation.forgetting import forget
from fedpact.federation.gate import Gate
from fedpact.federation.identity import Identity
from fedpact.federation.policy import SitePolicy, read_policy
from fedpact.tasks import Custom, FileSource, PartySource, Task
from fedpact.tasks.base import digest_of_files
from fedpact.tasks.scored import ScoredTask


def open_site(file: str | Path) -> Site:
    """The site of this `site.toml`, ready to answer; what it keeps of old runs is erased.

    Raises OptionError for a file, key or folder that is not right.
    """
    policy = read_policy(file)
    forget(memory_folder(policy))
    return Site(policy.name, SiteSource(policy), memory_folder(policy), gate=open_gate(policy))


def open_gate(policy: SitePolicy) -> Gate:
    return Gate(policy, Identity.load(policy.key), AuditLog(audit_folder(policy)))


def audit_folder(policy: SitePolicy) -> Path:
    return policy.state / "audit"


def memory_folder(policy: SitePolicy) -> Path:
    return policy.state / "memory"


class SiteSource(PartySource):
    """A site's own table, one that nobody trains on if it has one, and its own code: for "custom", and for networks.

    Of a vertical task it keeps its piece of every model, in a folder by run.

    The digest is of the table that models are trained on: two runs on it are similar, whatever the other one holds.
    """

    def __init__(self, policy: SitePolicy) -> None:
        unseen = None if policy.holdout is None else FileSource(policy.name, policy.holdout)
        super().__init__(policy.name, policy.data, unseen, policy.alignment_key, policy.state / "pieces")
        self._functions = policy.functions
        self._network = policy.network
        self._least = policy.least_people
        self._modes = policy.alignments

    def accept(self, task: Task | Mapping[str, Any]) -> Task:
        """The task with the site's own code: the coordinator never says which code runs here."""
        asked = super().accept(task)
        if isinstance(asked, Custom):
            if self._functions is None:
                raise OptionError(
                    'task "custom": state this site\'s own Python file, functions = "..." in [site] of its site.toml',
                    code="FP-OPTION-012",
                )
            return replace(asked, functions=str(self._functions))
        if isinstance(asked, ScoredTask) and asked.has_code:
            if self._network is None:
                raise OptionError(
                    f'model = {asked.model!r}: state this site\'s own copy of that Python file, network = "..." in '
                    "[site] of its site.toml; it is run only if it has the digest that the job states",
                    code="FP-OPTION-014",
                    key="model",
                )
            return asked.with_code_at(str(self._network))
        return asked

    def people(self, task: Task | Mapping[str, Any]) -> People:
        """Who is in its table, under the conditions of its policy."""
        return replace(super().people(task), least=self._least, modes=self._modes)

    def piece(self, run: str) -> Path | None:
        """Each run's piece in a folder of its own: a coordinator predicts with the model of the run that it names."""
        file = super().piece(run)
        return file and file.parent / run / file.name

    def digest(self) -> str:
        if self._functions is None:
            return super().digest()
        return digest_of_files(self.path, self._functions)
