"""Score models: networks beside PyTorch's own, losses beside formulas, models in the units of the columns, misuse."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.data.encoding import Encoding, Scaling
from fedpact.functions import parameters_to_torch
from fedpact.tasks import Classification, NeymanPearson, Requirement, Rows, load_model
from fedpact.tasks.model import NetworkModel
from fedpact.tasks.scorers import LinearScorer, PerceptronScorer

rng = np.random.default_rng(3)
X = rng.standard_normal((40, 3))
RECALL = Requirement(kind="recall", at_least=0.9)


def network(classes: int = 2, activation: str = "relu") -> PerceptronScorer:
    return PerceptronScorer(classes, 3, (5, 4), activation)


def task(**more: Any) -> Classification:
    return Classification(label="y", columns=("a", "b", "c"), **{"model": "mlp", "layers": (5, 4), **more})


def losses_by_hand(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([np.log(np.sum(np.exp(row))) - row[k] for row, k in zip(scores, y, strict=True)])


@pytest.mark.extras
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_pytorch(classes: int, activation: str) -> None:
    torch = pytest.importorskip("torch")
    scorer = network(classes, activation)
    w = scorer.start(1)
    unit = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[activation]
    outputs = 1 if classes == 2 else 3
    layers = [torch.nn.Linear(3, 5), unit(), torch.nn.Linear(5, 4), unit(), torch.nn.Linear(4, outputs)]
    module = torch.nn.Sequential(*layers).double()
    parameters_to_torch(w, module)  # refuses a vector of another length
    with torch.no_grad():
        expected = module(torch.tensor(X)).numpy()
    found = scorer.scores(w, X)
    np.testing.assert_allclose(found[:, -outputs:], expected, rtol=1e-12, atol=1e-15)
    assert found.shape == (40, classes)
    if classes == 2:
        np.testing.assert_array_equal(found[:, 0], 0.0)


@pytest.mark.extras
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_is_the_weighted_mean_of_the_formula(classes: int, weighted: bool) -> None:
    pytest.importorskip("torch")
    scorer = network(classes, "tanh")
    w = scorer.start(2)
    y = np.arange(40) % classes
    weight = rng.uniform(0.5, 3.0, 40) if weighted else None
    loss = scorer.mean_loss(X, y, weight)
    expected = np.average(losses_by_hand(scorer.scores(w, X), y), weights=weight)
    assert loss.value(w) == pytest.approx(expected, rel=1e-6)  # single precision
    direction = rng.standard_normal(w.size)
    step = 1e-5
    ends = [
        np.average(losses_by_hand(scorer.scores(w + side * direction, X), y), weights=weight) for side in (step, -step)
    ]
    assert loss.gradient(w) @ direction == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-6)
    assert loss.rows == 40


@pytest.mark.extras
def test_decisions_are_where_scores_are_largest() -> None:
    pytest.importorskip("torch")
    for classes in (2, 3):
        scorer = network(classes)
        w = scorer.start(3)
        decided = scorer.decisions(X, 1.0).count(w)
        if classes == 2:
            decided = np.column_stack([1 - decided, decided])
        np.testing.assert_array_equal(decided.argmax(axis=1), scorer.scores(w, X).argmax(axis=1))


def test_parameters_and_start() -> None:
    scorer = network(3)
    sizes = [(3, 5), (5, 4), (4, 3)]
    assert scorer.parameters == 4 * 5 + 6 * 4 + 5 * 3
    w = scorer.start(0)
    assert w.size == scorer.parameters
    limits = np.concatenate([np.full((inputs + 1) * units, 1 / np.sqrt(inputs)) for inputs, units in sizes])
    assert np.all(np.abs(w) <= limits)
    assert np.max(np.abs(w) / limits) > 0.9
    np.testing.assert_array_equal(w, scorer.start(0))
    assert not np.array_equal(w, scorer.start(1))
    biases = [bias for _, bias in scorer.split(np.arange(scorer.parameters))]
    np.testing.assert_array_equal(np.flatnonzero(scorer.penalized == 0), np.concatenate(biases))


def test_a_model_scores_columns_in_their_own_units(tmp_path: Path) -> None:
    own = X * [1.0, 20.0, 0.1] + [5.0, 0.0, -3.0]
    own[2, 1] = np.nan
    asked = task(classes=("a", "b", "c"), missing="mean", standardize=True)
    mean = np.nanmean(own, axis=0)
    asked = asked.scaled(Scaling.of(mean, np.nanstd(own, axis=0), [True, True, True]))
    w = asked.start(4)
    assert w is not None
    expected = asked.scorer.scores(w, asked.design(own))
    model = asked.make_model(w)
    assert isinstance(model, NetworkModel)
    np.testing.assert_allclose(model.scores(own), expected, rtol=1e-9, atol=1e-12)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, NetworkModel)
    assert loaded.scores(own).tobytes() == model.scores(own).tobytes()
    assert loaded.about() == model.about()
    np.testing.assert_array_equal(loaded.predict(own), expected.argmax(axis=1))


def test_a_linear_task_scores_as_it_did() -> None:
    plain = task(model="linear", layers=())
    assert plain.start(0) is None
    assert plain.scorer == LinearScorer(2)
    assert plain.parameters == 4
    assert task().parameters == 4 * 5 + 6 * 4 + 5
    assert plain.encoding == Encoding(("a", "b", "c"))


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"model": "forest"}, "FP-OPTION-900"),
        ({"model": "linear"}, "FP-OPTION-901"),
        ({"layers": ()}, "FP-OPTION-902"),
        ({"layers": (8, 0)}, "FP-OPTION-902"),
        ({"activation": "sine"}, "FP-OPTION-903"),
        ({"intercept": False}, "FP-OPTION-904"),
        ({"l1": 0.1}, "FP-OPTION-904"),
        ({"objective": "errors", "constraints": (RECALL,)}, "FP-OPTION-905"),
        ({"own_intercept": True}, "FP-OPTION-906"),
        ({"constraints": (Requirement(kind="recall", at_least=0.9, held_by="all"),)}, "FP-OPTION-907"),
    ],
)
def test_what_networks_do_not_take(stated: dict[str, Any], code: str) -> None:
    with raises_code(code):
        task(**stated)


def test_only_training_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name == "torch":
            raise ImportError(name)
        return known(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    asked = task(constraints=(RECALL,), owners=1)
    w = asked.start(0)
    assert w is not None
    assert asked.make_model(w).predict(X).shape == (40,)
    with raises_code("FP-OPTION-101", "a network", "pip install '.[torch]'"):
        asked.share("north", Rows(X, np.arange(40) % 2))


def test_what_is_minimised() -> None:
    """A network whose rates are bounded minimises its loss on all rows; under a loss bound, on the others."""
    assert task(constraints=(RECALL,)).sentence().endswith("least loss on all rows.")
    assert task(model="linear", layers=(), constraints=(RECALL,)).sentence().endswith("least errors on the others.")
    stated = task(model="linear", layers=(), constraints=(RECALL,), objective="loss")
    assert stated.sentence().endswith("least loss on all rows.")
    bounded = NeymanPearson(label="y", columns=("a", "b", "c"), model="mlp", layers=(4,), bound=0.3)
    assert bounded.sentence().endswith("loss on the others.")
