"""`fedpact init`: an example job, with every key explained, and small made-up tables of three hospitals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from fedpact.errors import OptionError
from fedpact.jobs.keys import KEYS, OPEN, JobKey, schema
from fedpact.report.files import explain_write_errors
from fedpact.tasks import TASKS, keys_of

#: What the example states; all other keys stand behind a #, with a value to begin with.
EXAMPLE: dict[tuple[str, str], str] = {
    ("", "title"): '"Three hospitals"',
    ("", "task"): '"neyman_pearson"',
    ("", "label"): '"relapse"',
    ("", "classes"): '["no", "yes"]',
    ("", "protected"): '"yes"',
    ("", "features"): '["age", "dose", "pressure", "smoker"]',
    ("", "bound"): "0.35",
    ("", "missing"): '"mean"',
    ("", "standardize"): "true",
    ("", "regularization"): "0.001",
    ("solve", "tol"): "1e-3",
    ("solve", "seed"): "0",
    ("output", "folder"): '"run"',
}
TASK = "neyman_pearson"
#: Lines of the tables whose keys are the user's own names.
OWNERS = ['north = "north.csv"', 'south = "south.csv"', 'coast = "coast.csv"']
CATEGORIES = ['smoker = ["never", "former", "now"]']
SCHEMA = "job.schema.json"
#: Choices that a comment lists, at most; the reference page has all.
LISTED = 5


def example_job(folder: Path) -> str:
    """A job file with comments on every key, made from their declaration."""
    lines = [
        f"#:schema ./{SCHEMA}",
        f"# A job: what is trained, under which constraint, and at whom. Run it with: fedpact run {folder}/job.toml",
        "# Paths are relative to this file. A key that is not needed may be left out; [ ] is its default.",
        "",
        *(f"# {name}: {kind.title}" for name, kind in TASKS.items()),
        *_task_lines(TASK),
        "",
        f"[owners]  # {OPEN['owners']}",
        *OWNERS,
        "",
        f"[categories]  # {KEYS['', 'categories'].doc}",
        *CATEGORIES,
        "",
        f"# [bound]  # {OPEN['bound']}",
        *(f"# {owner.partition(' ')[0]} = {EXAMPLE['', 'bound']}" for owner in OWNERS),
    ]
    for table in dict.fromkeys(table for table, _ in KEYS if table):
        lines += _table_lines(table)
    return "\n".join(lines) + "\n"


def _task_lines(task: str) -> list[str]:
    """The keys at the top: those of this task, and behind # what the others have that it has not."""
    own = keys_of(TASKS[task])
    lines = ["", *(_line(key) for key in _top_keys() if not key.tasks or task in key.tasks)]
    for other, kind in TASKS.items():
        more = {name: key.doc for name, (_, _, key) in keys_of(kind).items() if name not in own or own[name][2] != key}
        if more:
            lines += ["", f'# for task = "{other}":']
            lines += [_line(replace(KEYS["", name], doc=doc), stated=False) for name, doc in more.items()]
    return lines


def _top_keys() -> list[JobKey]:
    """Keys at the top, with the words of the example's task; [categories] is a table of its own."""
    own = keys_of(TASKS[TASK])
    keys = [key for key in KEYS.values() if not key.table and key.kind != "levels"]
    return [replace(key, doc=own[key.name][2].doc) if key.name in own else key for key in keys]


def _table_lines(table: str) -> list[str]:
    """The keys of a table; one of which the example states nothing stands behind #."""
    keys = [key for key in KEYS.values() if key.table == table]
    stated = any((key.table, key.name) in EXAMPLE for key in keys)
    lines = ["", f"[{table}]" if stated else f"# [{table}]", *map(_line, keys)]
    for name in OPEN:
        if name.startswith(f"{table}."):
            lines += ["", f"# [{name}]  # {OPEN[name]}"]
    return lines


def _line(key: JobKey, stated: bool = True) -> str:
    """A key with a value, what it is for, and its default."""
    about = key.doc
    if 0 < len(key.choices) <= LISTED and key.name != "task":
        about += f": {', '.join(key.choices)}"
    if key.table and key.tasks and TASK not in key.tasks:
        about += f" ({', '.join(key.tasks)})"
    if key.default:
        about += f" [{key.default.removeprefix('[').removesuffix(']') or 'none'}]"
    value = EXAMPLE.get((key.table, key.name)) if stated else None
    entry = f"# {key.name} = {key.example}" if value is None else f"{key.name} = {value}"
    return f"{entry:<36}  # {about}"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Of the made-up patients.")
def init(folder: Path, seed: int) -> None:
    """Write an example into FOLDER: job.toml with comments on every key, and tables of three hospitals.

    job.schema.json lets editors that know TOML schemas complete and check the keys.

    The patients are made up: numbers, a column of text and a few absent values, at hospitals that differ.

    \b
    fedpact init hospitals
    fedpact run hospitals/job.toml
    """
    for name in ("job.toml", *(f"{hospital}.csv" for hospital in HOSPITALS)):
        if (folder / name).exists():
            raise OptionError(f"{folder / name} exists already; choose a new folder", code="FP-OPTION-502")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.toml").write_text(example_job(folder), encoding="utf-8")
        (folder / SCHEMA).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
        for k, hospital in enumerate(HOSPITALS):
            (folder / f"{hospital}.csv").write_text(_table(np.random.default_rng([seed, k]), k), encoding="utf-8")
    click.echo(f"wrote {folder}/job.toml and {len(HOSPITALS)} tables; next: fedpact run {folder}/job.toml")


HOSPITALS = ("north", "south", "coast")


def _table(rng: np.random.Generator, hospital: int) -> str:
    """200 to 300 patients; age, dose, pressure and smoking tell about a relapse; hospitals differ a little."""
    rows = 200 + 50 * hospital
    age = rng.normal(58 + 3 * hospital, 9, rows)
    dose = rng.gamma(4.0, 5.0, rows)
    pressure = rng.normal(130, 15, rows)
    smoker = rng.choice(["never", "former", "now"], rows, p=[0.5, 0.3, 0.2])
    score = 0.09 * (age - 60) - 0.06 * (dose - 20) + 0.03 * (pressure - 130) + (smoker == "now") - 0.8 + 0.3 * hospital
    relapse = rng.random(rows) < 1 / (1 + np.exp(-1.5 * score))
    absent = rng.random(rows) < 0.03
    lines = ["patient,age,dose,pressure,smoker,relapse"]
    lines += [
        f"{hospital + 1}{i:04d},{age[i]:.0f},{dose[i]:.1f},{'' if absent[i] else f'{pressure[i]:.0f}'},{smoker[i]},"
        f"{'yes' if relapse[i] else 'no'}"
        for i in range(rows)
    ]
    return "\n".join(lines) + "\n"
