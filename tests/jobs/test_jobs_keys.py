"""The keys of a job, declared once: the reader, the example, and the schema for editors follow the declaration."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from job_files import change
from raising import raises_code

from fedpact.cli.init import EXAMPLE, SCHEMA
from fedpact.errors import OptionError
from fedpact.jobs import read_job, run_job
from fedpact.jobs.job_text import key_lines
from fedpact.jobs.keys import KEYS, KINDS, LISTS, OPEN, schema
from fedpact.tasks import TASKS

# -------------------------------------------------------------------------------------------------- what a task uses


@pytest.mark.parametrize(
    ("line", "tasks"),
    [
        ('family = "huber"', "regression"),
        ('parity = "loss"', "group_fairness"),
        ('functions = "mine.py"', "custom"),
    ],
)
def test_a_key_that_the_task_does_not_use_is_an_error(folder: Path, line: str, tasks: str) -> None:
    job = change(folder, 'protected = "yes"', f'protected = "yes"\n{line}')
    number = 1 + next(i for i, text in enumerate(job.read_text().splitlines()) if text.startswith(line))
    key = line.split(" ")[0]
    with raises_code("FP-OPTION-367", f"{job}:{number}: {key}: ", "'neyman_pearson'", f"(it is for: {tasks})"):
        read_job(job)


@pytest.mark.parametrize(
    ("text", "key", "tasks"),
    [
        ("[server]\ndata = 'one.npz'", "data", "neyman_pearson, group_fairness, classification, vertical"),
        (
            "[solve]\ncompare = true",
            "compare",
            "neyman_pearson, group_fairness, classification, regression, minimax, vertical",
        ),
        (
            "[categories]\nage = ['old']",
            "categories",
            "neyman_pearson, group_fairness, classification, regression, minimax, vertical, custom",
        ),
        ("[[constraint]]\nkind = 'recall'", "constraint", "neyman_pearson, group_fairness, classification, vertical"),
        ("[bound]\none = 1.0", "bound", "neyman_pearson, group_fairness"),
    ],
)
def test_so_it_is_in_a_table(tmp_path: Path, text: str, key: str, tasks: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'task = "linear_qp"\n[owners]\none = "one.npz"\n{text}\n')
    with raises_code("FP-OPTION-367", str(job), f"{key}: task 'linear_qp'", f"(it is for: {tasks})"):
        read_job(job)


def test_a_weight_of_no_use_is_an_error(tmp_path: Path) -> None:
    """A quadratic program has no model to shrink; the weight would be ignored."""
    job = tmp_path / "job.toml"
    job.write_text('task = "linear_qp"\nregularization = 0.1\n[owners]\none = "one.npz"\n')
    with raises_code("FP-OPTION-367", f"{job}:2: regularization: ", "'linear_qp'"):
        read_job(job)


# ------------------------------------------------------------------------------------------------ options of a method


def test_options_reach_the_method(folder: Path) -> None:
    job = change(folder, '# method = "auto"', 'method = "proximal-al"\nmax_rounds = 20')
    change(folder, "# compare = true", "compare = false")
    change(folder, "# [solve.options]", "[solve.options]\npenalty = 70\nconsensus_penalty = 3.5\n#")
    assert read_job(job).options == {"penalty": 70, "consensus_penalty": 3.5}
    seen: list[Any] = []
    from fedpact import solvers

    check = solvers.METHODS["proximal-al"].check

    def see(solver: Any, given: Any) -> None:
        seen.append(solver)
        check(solver, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers.METHODS["proximal-al"], "check", see)
        run_job(read_job(job))
    assert [(solver.penalty, solver.consensus_penalty) for solver in seen] == [(70.0, 3.5)]


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("proximal-al", "pennalty = 3", "has no option 'pennalty'; it takes penalty"),
        ("proximal-al", "penalty = -3", "penalty = -3: give a number above 0"),
        ("proximal-al", 'penalty = "high"', "penalty = 'high': give a number"),
    ],
)
def test_options_that_the_method_does_not_take(folder: Path, method: str, option: str, message: str) -> None:
    change(folder, '# method = "auto"', f'method = "{method}"')
    job = change(folder, "# [solve.options]", f"[solve.options]\n{option}\n#")
    number = 1 + next(i for i, line in enumerate(job.read_text().splitlines()) if line.startswith(option))
    with pytest.raises(OptionError, match=rf"job\.toml:{number}: .*{message}"):
        read_job(job)


def test_options_need_a_method(folder: Path) -> None:
    change(folder, '# method = "auto"', 'method = "auto"')
    job = change(folder, "# [solve.options]", "[solve.options]\npenalty = 3\n#")
    number = 1 + next(i for i, line in enumerate(job.read_text().splitlines()) if line.startswith("method"))
    with raises_code("FP-OPTION-373", f"{job}:{number}: "):
        read_job(job)


# --------------------------------------------------------------------------------------------------------- the example


def test_the_example_states_every_key(folder: Path) -> None:
    """Each stands below its table, with a value of its kind and what it is for; those not in use behind #."""
    uncommented = re.sub(r"^# (\[+[\w.]+\]+|\w+ = )", r"\1", (folder / "job.toml").read_text(), flags=re.MULTILINE)
    found = key_lines(uncommented)
    for key in KEYS.values():
        place = ("", key.table) if key.table in LISTS else (key.table, key.name)  # a list is explained as a whole
        assert place in found, key
        assert key.doc.split(";")[0] in uncommented or key.kind == "levels", key
    for table in OPEN:
        assert ("", table) in found
    assert {(key.table, key.name) for key in KEYS.values()} >= set(EXAMPLE)


def test_every_example_value_is_of_its_kind() -> None:
    for key in KEYS.values():
        assert key.kind in KINDS
        if key.kind == "levels":
            continue
        value = tomllib.loads(f"value = {key.example}")["value"]
        assert isinstance(value, KINDS[key.kind].types), key
        if key.choices:
            assert set(value if isinstance(value, list) else [value]) <= set(key.choices), key
        assert set(key.tasks) <= set(TASKS)


def test_the_example_reads_back_as_what_it_states(folder: Path) -> None:
    file = read_job(folder / "job.toml")
    stated = {(key.table, key.name) for key in KEYS.values()}
    for (table, name), value in EXAMPLE.items():
        assert (table, name) in stated
        place = file.settings[table] if table else file.settings
        assert place[name] == tomllib.loads(f"value = {value}")["value"]


def test_keys_behind_a_number_sign_can_be_used_as_they_stand(folder: Path) -> None:
    """All keys of [solve] and [output] with the values that the example has for them."""
    text = (folder / "job.toml").read_text()
    head, mark, rest = text.partition("[solve]")
    used = re.sub(r"^# (\w+ = )", r"\1", rest.partition("# [flower]")[0], flags=re.MULTILINE)
    used = re.sub(r'^engine = "in-process"', 'engine = "threads"', used, flags=re.MULTILINE)
    used = re.sub(r"^(secure_sum|data|alignment_key) = .*\n", "", used, flags=re.MULTILINE)
    (folder / "job.toml").write_text(head + mark + used)
    file = read_job(folder / "job.toml")
    assert set(file.settings["solve"]) == {n for t, n in KEYS if t == "solve"} - {"secure_sum", "alignment_key"}
    assert run_job(file).solved


# ---------------------------------------------------------------------------------------------------------- the schema


def test_the_schema_is_one_and_accepts_the_example(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    written = json.loads((folder / SCHEMA).read_text())
    assert written == schema()
    jsonschema.Draft202012Validator.check_schema(written)
    validator = jsonschema.Draft202012Validator(written)
    job = tomllib.loads((folder / "job.toml").read_text())
    assert list(validator.iter_errors(job)) == []
    for wrong in (
        {"task": "magic"},
        {"bound": "high"},
        {"features": "age"},
        {"bounds": 0.2},
        {"solve": {"method": "magic"}},
        {"output": {"track": ["wandb"]}},
        {"owners": {"north": 3}},
        {"constraint": {"kind": "recall", "at_least": 0.9}},
        {"constraint": [{"at_least": 0.9}]},
        {"constraint": [{"kind": "recal", "at_least": 0.9}]},
        {"constraint": [{"kind": "recall", "atleast": 0.9}]},
    ):
        assert not validator.is_valid({**job, **wrong}), wrong
    listed = {"kind": "recall", "of": 1, "at_least": {"north": 0.9}, "held_by": "each", "confidence": 0.95}
    for right in (
        {"constraint": [listed]},
        {"bound": {"north": 0.2}},
        {"solve": {"method": "proximal-al", "options": {"penalty": 3}}},
    ):
        assert validator.is_valid({**job, **right}), right


def test_the_schema_has_every_key_and_no_other() -> None:
    top = schema()["properties"]
    tables = {name: part["properties"] for name, part in top.items() if "properties" in part}
    found = {("", name) for name in top} - {("", name) for name in tables}
    found |= {(table, name) for table, part in tables.items() for name in part}
    found |= {(table, name) for table in LISTS for name in top[table]["items"]["properties"]}
    openings = {tuple(name.rpartition(".")[::2]) for name in OPEN}
    assert found == set(KEYS) | openings
