"""Options of the consensus methods: every default may be stated, and every option says what it means."""

import pytest

import fedpact as fp
from fedpact.solvers import METHODS
from fedpact.solvers.base import defaults, options_of

NAMES = ["fedavg", "fedprox", "scaffold", "feddr", "fedsplit", "ifeddr"]


@pytest.mark.parametrize("name", NAMES)
def test_defaults_may_be_stated(name: str) -> None:
    kind = METHODS[name]
    stated = defaults(kind)
    assert kind(**stated) == kind()
    assert kind.build(stated) == kind()


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_explained(name: str) -> None:
    for option, (_, _, about) in options_of(METHODS[name]).items():
        assert about.doc, option


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused_with_the_known_ones(name: str) -> None:
    known = ", ".join(defaults(METHODS[name]))
    with pytest.raises(fp.errors.OptionError, match=f"has no option 'penalty'; it takes {known}"):
        METHODS[name].build({"penalty": 1.0})
