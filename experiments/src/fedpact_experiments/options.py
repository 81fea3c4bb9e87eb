"""Options that the commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

DATA = click.option("--data", "folder", help="Folder of the data sets. [default: FEDPACT_DATA, then the cache]")
COUNT = click.IntRange(1)
TOLERANCE = click.FloatRange(0, 1, min_open=True, max_open=True)


class Listed(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument here
    """One or several values, separated by commas."""

    name = "list"

    def __init__(self, one: click.ParamType[Any]) -> None:
        self.one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        return [self.one.convert(part, param, ctx) for part in parts]


def several(option: str, one: click.ParamType[Any], default: Sequence[object], text: str) -> Callable[[Any], Any]:
    """An option that may be repeated or be given several values at once; the command gets a tuple without doubles."""

    def flat(ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[object]]) -> tuple[object, ...]:
        return tuple(dict.fromkeys(item for part in value for item in part))

    return click.option(
        option,
        type=Listed(one),
        multiple=True,
        default=[",".join(str(item) for item in default)] if default else [],
        show_default=bool(default),
        callback=flat,
        metavar="LIST",
        help=f"{text} Repeat the option, or separate by commas.",
    )


def among(
    option: str, names: Sequence[str], default: Sequence[str] | None = None, of: str = ""
) -> Callable[[Any], Any]:
    """`several` of these names; by default all of them."""
    return several(
        option, click.Choice(list(names)), names if default is None else default, f"{of}Among {', '.join(names)}."
    )
