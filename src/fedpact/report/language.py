"""The language of a report: every text is looked up in a catalogue, from English to that language."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fedpact.errors import FedpactError

#: English text, with its places {name}, -> the same in the language of the report. What is missing stays English.
_WORDS: ContextVar[Mapping[str, str]] = ContextVar("words", default={})  # noqa: B039 - never changed, only replaced


def say(text: str, **values: object) -> str:
    """The text in the language of the report, with the values in its places."""
    found = _WORDS.get().get(text, text)
    return found.format(**values) if values else found


@contextmanager
def language(words: Mapping[str, str]) -> Iterator[None]:
    """Texts are said in the language of this catalogue."""
    before = _WORDS.set(words)
    try:
        yield
    finally:
        _WORDS.reset(before)


def read_words(path: Path) -> dict[str, str]:
    """A catalogue: a TOML file of lines "English" = "other language"; none if there is no file. FedpactError if bad."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FedpactError(f"{path} cannot be read as a list of texts ({error}); correct it", code="FP-940") from error
    return {str(english): str(other) for english, other in found.items()}
