"""Three hospitals on disk, as their administrators set them up, and a coordinator that asks them whatever it likes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.federation import Site
from fedpact.federation.identity import Identity, sign_message, split_signed
from fedpact.federation.memory import Step
from fedpact.federation.messages import Order, Sealed, rebuild
from fedpact.federation.remote import read_reply
from fedpact.federation.secure_sum import Agree, Offer, add_parts, agree, fit_of, offer
from fedpact.federation.wire import dumps, name_of, to_tree
from fedpact.jobs.site import open_site
from fedpact.tasks import Task
from fedpact.types import Matrix, Vector

OWNERS = ("north", "south", "coast")
COLUMNS = ("age", "dose")


@dataclass(frozen=True)
class Hospitals:
    """files: the site.toml of each; tables: the rows of each, age and dose; labels: its `ill`"""

    files: Mapping[str, Path]
    tables: Mapping[str, Matrix]
    labels: Mapping[str, Vector]
    key: Path

    def open(self) -> dict[str, Site]:
        """As their processes start them."""
        return {owner: open_site(file) for owner, file in self.files.items()}


def write_hospitals(folder: Path, rules: str = "", rows: int = 80, seed: int = 0, owners: Any = OWNERS) -> Hospitals:
    """Tables, keys and a site.toml each with its default rules; `rules`: more lines of it."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {owner: Identity.create(folder / f"{owner}.pem").public for owner in owners}
    submitting = Identity.create(folder / "coordinator.pem").public
    generator = np.random.default_rng(seed)
    tables, labels, files = {}, {}, {}
    for owner in owners:
        X = generator.normal(size=(rows, 2)) * [9.0, 3.0] + [60.0, 10.0]
        z = (X - [60.0, 10.0]) / [9.0, 3.0]
        y = (z @ [1.0, 0.6] + generator.normal(size=rows) > 0).astype(float)
        tables[owner], labels[owner] = X, y
        write_table(folder / f"{owner}.csv", X, y)
        peers = [f"{json.dumps(other)} = {json.dumps(keys[other])}" for other in owners if other != owner]
        files[owner] = folder / f"{owner}.toml"
        allowed = 'features = ["age", "dose"]\nlabels = ["ill", "dose"]\ntasks = ["classification", "neyman_pearson"]\n'
        files[owner].write_text(
            f'[site]\nname = "{owner}"\ndata = "{owner}.csv"\nstate = "{owner} state"\nkey = "{owner}.pem"\n'
            f'[coordinators]\nstudy = "{submitting}"\n[peers]\n' + "\n".join(peers) + f"\n[allow]\n{allowed}{rules}\n"
        )
    return Hospitals(files, tables, labels, folder / "coordinator.pem")


def write_table(path: Path, X: Matrix, y: Vector) -> None:
    """A table of the columns age, dose and ill."""
    lines = [f"{age!r},{dose!r},{int(ill)}" for (age, dose), ill in zip(X.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join(["age,dose,ill", *lines, ""]))


@dataclass
class Coordinator:
    """It has a key that the sites accept, and says what it likes: every order is its own choice.

    job: what it states at the start of a run; run: a name that it makes up
    """

    sites: Mapping[str, Site]
    key: Path
    job: Task
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    round: int = 0
    secure: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identity = Identity.load(self.key)
        self.job = self.job.among(tuple(self.sites))

    def send(self, owner: str, step: Step, order: Order, task: Task | Mapping[str, Any] | None) -> Sealed[Any]:
        """One order to one site. Raises what the site refuses it with."""
        stated = task.stated() if isinstance(task, Task) else task
        charter = {"run": self.run, "owners": list(self.sites), "job": {**self.job.identity(), **self.more}}
        content = {"owner": owner, "step": name_of(step), "order": to_tree(order), "task": stated, "charter": charter}
        reply = self.sites[owner].handle(sign_message(self.identity, "order", dumps(content)))
        return read_reply(owner, step, order, split_signed(reply)[1])

    def stamp(self, order: Order) -> Order:
        self.round += 1
        return replace(order, run=self.run, round=self.round, secure=self.secure)

    def ask(self, step: Step, order: Order, tasks: Mapping[str, Any] | Task | None = None) -> dict[str, Sealed[Any]]:
        """The replies of all sites; tasks: one for all, or another one for each of them."""
        stamped = self.stamp(order)
        by_owner = tasks if isinstance(tasks, Mapping) else dict.fromkeys(self.sites, tasks or self.job)
        return {owner: self.send(owner, step, stamped, by_owner[owner]) for owner in self.sites}

    def agree(self) -> None:
        """Keys for secure sums, as an honest coordinator has them agreed on."""
        offered = [one.kept for one in self.ask(offer, Offer()).values()]
        publics = json.dumps([one.public for one in offered])
        signatures = json.dumps([one.signature for one in offered])
        self.ask(agree, Agree(names=json.dumps(list(self.sites)), publics=publics, signatures=signatures))
        self.secure = True

    def total(self, step: Step, order: Order, tasks: Mapping[str, Any] | Task | None = None) -> Any:
        """What the replies of all sites add up to. OwnerError where their masks do not cancel."""
        sealed = list(self.ask(step, order, tasks).values())
        total = add_parts([one.sums for one in sealed], fit_of(order, sealed[0], len(sealed)))
        kept = [one.kept for one in sealed]
        return rebuild(type(kept[0]), sealed[0].shapes, total, kept, masked=self.secure)
