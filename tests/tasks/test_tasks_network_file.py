"""Networks that a Python file builds: beside a perceptron of the same parameters, small convolutions, refusals."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.data.encoding import Scaling
from fedpact.errors import OptionError
from fedpact.tasks import Classification, Model, Requirement, Rows, load_model, read_task
from fedpact.tasks.model import ModuleModel
from fedpact.tasks.network_file import NetworkFile
from fedpact.tasks.scorers import ModuleScorer, PerceptronScorer

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

pytestmark = pytest.mark.extras

rng = np.random.default_rng(3)
X = rng.standard_normal((40, 3))

PERCEPTRON = """\
from torch import nn

def build(inputs, outputs):
    layers = [nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, outputs)]
    return nn.Sequential(*layers)
"""
CONVOLUTION = """\
from __future__ import annotations

from dataclasses import dataclass

from torch import nn

@dataclass
class Sizes:
    side: int = 6

class Images(nn.Module):
    def forward(self, pixels):
        return pixels.reshape(-1, 1, Sizes().side, Sizes().side)

def build(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        Images(), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(64, outputs)
    )
"""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def write(folder: Path, source: str = PERCEPTRON) -> str:
    """A file, as a model names it."""
    (folder / "mine.py").write_text(source)
    return f"{folder / 'mine.py'}:build"


def task(model: str, **more: Any) -> Classification:
    return Classification(label="y", columns=("a", "b", "c"), model=model, **more)


def bars(owners: int = 3, rows: int = 150) -> dict[str, Rows]:
    """Images of 6 x 6 pixels, with a bar somewhere: class 1 where it is upright."""
    made = {}
    for k in range(owners):
        draw = np.random.default_rng([5, k])
        y = draw.integers(0, 2, rows)
        images = 0.4 * draw.standard_normal((rows, 6, 6))
        for image, upright, at in zip(images, y, draw.integers(0, 6, rows), strict=True):
            if upright:
                image[:, at] += 1.0
            else:
                image[at] += 1.0
        made[f"owner {k + 1}"] = Rows(images.reshape(rows, 36), y)
    return made


# ---------------------------------------------------------------------------------------------------- what it computes


@pytest.mark.parametrize("classes", [2, 3])
def test_a_perceptron_in_a_file_scores_as_the_one_of_layers(classes: int, tmp_path: Path) -> None:
    """NumPy's own formula beside PyTorch's modules, with the same parameters."""
    plain = PerceptronScorer(classes, 3, (5, 4), "tanh")
    written = ModuleScorer(classes, 3, NetworkFile.find(write(tmp_path)))
    assert written.parameters == plain.parameters
    w = plain.start(1)
    np.testing.assert_allclose(written.scores(w, X), plain.scores(w, X), rtol=1e-12, atol=1e-15)
    assert written.scores(w, X).dtype == np.float64
    y = np.arange(40) % classes
    weight = rng.uniform(0.5, 3.0, 40)
    losses = [scorer.mean_loss(X, y, weight) for scorer in (written, plain)]
    assert losses[0].value(w) == losses[1].value(w)
    np.testing.assert_array_equal(losses[0].gradient(w), losses[1].gradient(w))
    decided = [scorer.decisions(X, 1.0).count(w) for scorer in (written, plain)]
    np.testing.assert_array_equal(*decided)


def test_parameters_are_drawn_from_the_seed_and_from_nothing_else(tmp_path: Path) -> None:
    scorer = ModuleScorer(2, 3, NetworkFile.find(write(tmp_path)))
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    first = scorer.start(1)
    assert torch.equal(torch.rand(3), expected)  # the generator of whoever calls is where it was
    (tmp_path / "copy").mkdir()
    again = ModuleScorer(2, 3, NetworkFile.find(write(tmp_path / "copy")))  # built anew
    assert again.start(1).tobytes() == first.tobytes()
    assert again.start(2).tobytes() != first.tobytes()


def test_all_parameters_are_penalized_without_running_the_file(tmp_path: Path) -> None:
    asked = task(write(tmp_path), regularization=0.1, code={"model": "x.py:build", "path": "x.py", "digest": "0"})
    penalty = replace(asked, model="x.py:build").regularizer()
    assert penalty is not None
    w = rng.standard_normal(49)
    assert penalty.value(w) == pytest.approx(0.05 * w @ w)


def test_a_convolution_meets_its_bounds_at_every_owner(tmp_path: Path) -> None:
    rows = bars()
    columns = tuple(f"pixel {j}" for j in range(36))
    bounds = tuple(Requirement(kind="recall", of=name, at_least=0.9) for name in ("0", "1"))
    asked = Classification(
        label="y", columns=columns, model=write(tmp_path, CONVOLUTION), constraints=bounds, regularization=1e-4
    )
    found = fp.fit(asked, rows)
    assert found.trained, found.solution.reason
    assert isinstance(found.model, Model)
    for own in rows.values():
        decided = found.model.predict(own.X)
        assert min(np.mean(decided[own.y == k] == k) for k in (0, 1)) >= 0.9
    short: dict[str, Any] = {"method": "stochastic-al", "passes": 2, "seed": 4}
    first = fp.fit(asked, rows, **short).solution.w
    assert fp.fit(asked, rows, **short).solution.w.tobytes() == first.tobytes()


def test_a_model_scores_columns_in_their_own_units_and_keeps_its_file(tmp_path: Path) -> None:
    own = X * [1.0, 20.0, 0.1] + [5.0, 0.0, -3.0]
    own[2, 1] = np.nan
    model = write(tmp_path)
    asked = task(model, classes=("a", "b", "c"), missing="mean", standardize=True)
    asked = asked.scaled(Scaling.of(np.nanmean(own, axis=0), np.nanstd(own, axis=0), [True, True, True]))
    w = asked.start(4)
    assert w is not None
    expected = asked.scorer.scores(w, asked.design(own))
    made = asked.make_model(w)
    assert made.scores(own).tobytes() == expected.tobytes()
    folder = tmp_path / "saved"
    folder.mkdir()
    made.save(folder)
    (tmp_path / "mine.py").unlink()
    loaded = load_model(folder)
    assert isinstance(loaded, ModuleModel)
    assert loaded.scores(own).tobytes() == expected.tobytes()
    assert loaded.about() == made.about()
    np.testing.assert_array_equal(loaded.predict(own), expected.argmax(axis=1))


def test_a_threshold_moves_what_is_decided(tmp_path: Path) -> None:
    asked = task(write(tmp_path), constraints=(Requirement(kind="recall", at_least=0.9),))
    w = asked.start(0)
    assert w is not None
    scores = asked.make_model(w).scores(X)
    moved = replace(asked, decide_at=0.1).make_model(w)
    np.testing.assert_array_equal(moved.predict(X), (scores[:, 0] > 0.1).astype(int))


def test_a_task_travels_without_its_code(tmp_path: Path) -> None:
    asked = task(write(tmp_path)).among(["north"])
    assert asked.code is not None
    again = read_task(asked.stated())
    assert again == asked
    assert PERCEPTRON not in str(asked.stated())
    (tmp_path / "moved").mkdir()
    moved = replace(task(write(tmp_path / "moved")), model=asked.model).among(["north"])
    assert asked.identity()["code"] == moved.identity()["code"] == asked.code.digest
    other = replace(asked, model=write(tmp_path / "moved", PERCEPTRON.replace("5", "7")))  # code is of the model before
    assert other.parameters != asked.parameters


# ------------------------------------------------------------------------------------------------------------- refusals

RETURNS = "from torch import nn\nimport torch\n\ndef build(inputs, outputs):\n    return {}\n"
WRONG = {
    "not Python": ("def build(:\n", "FP-OPTION-913", "SyntaxError"),
    "no such function": ("x = 1\n", "FP-OPTION-912", "build"),
    "a function that the file imports": ("from os.path import join as build\n", "FP-OPTION-912", "build"),
    "an import that fails": ("import not_there_at_all\n", "FP-OPTION-913", "ModuleNotFoundError"),
    "another signature": ("def build():\n    pass\n", "FP-OPTION-913", "TypeError"),
    "no module": (RETURNS.format("7"), "FP-OPTION-914", "int"),
    "nothing to train": (RETURNS.format("nn.ReLU()"), "FP-OPTION-914", "ReLU"),
    "other features": (RETURNS.format("nn.Linear(inputs + 1, outputs)"), "FP-OPTION-915", "(2, 3)"),
    "single precision by hand": (
        RETURNS.format("nn.Sequential(nn.Linear(inputs, outputs), type('F', (nn.Module,), "
                       "{'forward': lambda self, x: x.float() @ torch.eye(1).double()})())"),
        "FP-OPTION-915",
        "float64",
    ),
    "two scores for two classes": (RETURNS.format("nn.Linear(inputs, 2)"), "FP-OPTION-916", "(2, 2)", "(rows, 1)"),
    "one number a row": (
        RETURNS.format("nn.Sequential(nn.Linear(inputs, outputs), nn.Flatten(0))"),
        "FP-OPTION-916",
        "(2,)",
    ),
    "dropout": (RETURNS.format("nn.Sequential(nn.Linear(inputs, 4), nn.Dropout(), nn.Linear(4, 1))"), "FP-OPTION-917"),
    "batch norm": (RETURNS.format("nn.Sequential(nn.BatchNorm1d(inputs), nn.Linear(inputs, 1))"), "FP-OPTION-917"),
}  # fmt: skip


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG.keys())
def test_a_file_that_builds_no_network_is_an_error_before_anybody_is_asked(
    source: tuple[str, ...], tmp_path: Path
) -> None:
    text, code, *facts = source
    model = write(tmp_path, text)
    rows = {"north": Rows(np.full((4, 3), np.nan), np.zeros(4))}  # which would be an error, too
    with raises_code(code, str(tmp_path / "mine.py"), *facts):
        fp.fit(task(model), rows)


def test_an_error_is_about_the_key_model(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        task(write(tmp_path, "x = 1\n")).start(0)
    assert caught.value.key == "model"


def test_a_file_that_is_absent_or_another_one(tmp_path: Path) -> None:
    model = write(tmp_path)
    known = NetworkFile.find(model)
    (tmp_path / "mine.py").write_text(PERCEPTRON + "# changed\n")
    with raises_code("FP-OPTION-911", str(tmp_path / "mine.py"), known.digest):
        known.build(3, 1, 0)
    (tmp_path / "mine.py").unlink()
    with raises_code("FP-OPTION-910", "", str(tmp_path / "mine.py")):
        task(model).start(0)


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"model": "mine.txt:build"}, "FP-OPTION-900"),
        ({"model": "mine.py"}, "FP-OPTION-900"),
        ({"model": "mine.py:"}, "FP-OPTION-900"),
        ({"model": "mine.py:build()"}, "FP-OPTION-900"),
        ({"layers": (4,)}, "FP-OPTION-901"),
        ({"intercept": False}, "FP-OPTION-904"),
        ({"l1": 0.1}, "FP-OPTION-904"),
        ({"own_intercept": True}, "FP-OPTION-906"),
        ({"constraints": (Requirement(kind="recall", at_least=0.9, held_by="all"),)}, "FP-OPTION-907"),
    ],
)
def test_what_is_refused_of_networks_is_refused_of_files(stated: dict[str, Any], code: str) -> None:
    with raises_code(code):
        task(**{"model": "mine.py:build", **stated})


@pytest.mark.parametrize(
    ("asked", "code"), [({"inference": "sandwich"}, "FP-OPTION-908"), ({"trade_off": True}, "FP-OPTION-909")]
)
def test_what_cannot_be_had_of_a_file(asked: dict[str, Any], code: str, tmp_path: Path) -> None:
    rows = {"north": Rows(X, np.arange(40) % 2)}
    with raises_code(code):
        fp.fit(task(write(tmp_path)), rows, **asked)


def test_scores_need_torch_and_the_rest_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = task(write(tmp_path))
    known = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name == "torch":
            raise ImportError(name)
        return known(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    made = asked.make_model(np.zeros(49))
    made.save(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, ModuleModel)
    with raises_code("FP-OPTION-101", "", "pip install '.[torch]'"):
        loaded.predict(X)
