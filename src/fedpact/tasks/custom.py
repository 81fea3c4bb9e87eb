"""A task of one's own: a Python file that makes a share of an owner's table."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from fedpact.data import Table
from fedpact.errors import OptionError
from fedpact.problem import Share
from fedpact.prox import Prox
from fedpact.tasks.base import Bounded, digest_of_files, key
from fedpact.tasks.tables import ClassTask, GroupedTask, Rows, penalty
from fedpact.types import Vector


@dataclass(frozen=True, kw_only=True)
class Custom(GroupedTask, ClassTask):
    """Objective and constraints of a function share(table, name, owners) in a Python file."""

    name: ClassVar[str] = "custom"
    title: ClassVar[str] = "objective and constraints of a Python file"
    comparable: ClassVar[bool] = False

    functions: str = key("", "Python file with a function share(table, name, owners)", "file", example='"mine.py"')

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.functions:
            raise OptionError(
                "task 'custom' needs functions=, a Python file with a function share(table, name, owners)",
                code="FP-OPTION-042",
                key="functions",
            )
        if self.sample_weight or self.class_weight:
            raise OptionError(
                f"task {self.name!r} does not weigh rows; take sample_weight and class_weight out",
                code="FP-OPTION-712",
                key="sample_weight" if self.sample_weight else "class_weight",
            )

    def build(self, owner: str, rows: Rows) -> Share:
        path = Path(self.functions)
        spec = importlib.util.spec_from_file_location("fedpact_custom_task", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise OptionError(
                f"functions = {self.functions!r} is no Python file; correct the path",
                code="FP-OPTION-060",
                key="functions",
            )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        build = getattr(module, "share", None)
        if not callable(build):
            raise OptionError(
                f"{path} has no function share(table, name, owners); define it", code="FP-OPTION-061", key="functions"
            )
        made = build(Table(rows.X, rows.y, self.encoding.names, rows.group), owner, self.owners)
        if not isinstance(made, Share):
            raise OptionError(
                f"{path}: share(...) returned {type(made).__name__}; return an fp.Share",
                code="FP-OPTION-062",
                key="functions",
            )
        return replace(made, name=owner)

    def regularizer(self) -> Prox | None:
        """Over all of w: only its owner knows what w is."""
        return penalty(self.l1, self.regularization, 1.0)

    def identity(self) -> dict[str, Any]:
        return {**self.stated(), "functions": digest_of_files(Path(self.functions))}

    def sentence(self) -> str:
        return f"The objective and constraints of {Path(self.functions).name} {self.everyone()}."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        for j, value in enumerate(values):
            yield Bounded(owner, f"constraint {j + 1}", float(value), 0.0, float(price[j]))
