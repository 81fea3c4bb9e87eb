"""`fedpact init`: an example job, with every key explained, and small made-up tables of three hospitals."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from fedpact.errors import OptionError
from fedpact.jobs.keys import KEYS, OPEN, JobKey, schema
from fedpact.tasks import TASKS

#: What the example states; all other keys are written behind a #, with their default.
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
#: Lines of the tables whose keys are the user's own names.
OWNERS = ['north = "north.csv"', 'south = "south.csv"', 'coast = "coast.csv"']
CATEGORIES = ['smoker = ["never", "former", "now"]']
SCHEMA = "job.schema.json"


def example_job(folder: Path) -> str:
    """A job file with comments on every key, made from their declaration."""
    task = EXAMPLE["", "task"].strip('"')
    lines = [
        f"#:schema ./{SCHEMA}",
        f"# A job: what is trained, under which constraint, and at whom. Run it with: fedpact run {folder}/job.toml",
        "# Paths are relative to this file. A key that is not needed may be left out; [ ] is its default.",
        "",
        *(f"# {name}: {kind.title}" for name, kind in TASKS.items()),
        *_keys_of_table("", task),
        *(line for other in TASKS if other != task for line in _other_task(other, task)),
        "",
        f"[owners]  # {OPEN['owners']}",
        *OWNERS,
        "",
        f"[categories]  # {KEYS['', 'categories'].doc}",
        *CATEGORIES,
    ]
    for table in dict.fromkeys(table for table, _ in KEYS if table):
        lines += _keys_of_table(table, task)
    return "\n".join(lines) + "\n"


def _keys_of_table(table: str, task: str) -> list[str]:
    """The keys of one table that this task uses; a table that the example leaves out stands behind #."""
    keys = [key for key in KEYS.values() if key.table == table and (not key.tasks or task in key.tasks)]
    lines = [_line(key) for key in keys if key.kind != "levels"]
    if not table or not lines:
        return ["", *lines] if lines else []
    stated = any((key.table, key.name) in EXAMPLE for key in keys)
    return ["", f"[{table}]" if stated else f"# [{table}]", *lines]


def _other_task(other: str, task: str) -> list[str]:
    """The keys that another task has and this one has not."""
    keys = [key for key in KEYS.values() if other in key.tasks and task not in key.tasks]
    return ["", f'# for task = "{other}":', *(_line(key) for key in keys)] if keys else []


def _line(key: JobKey) -> str:
    """A key with its value, what it is for, and its default."""
    about = key.doc
    if key.choices and key.name != "task":
        about += f": {', '.join(key.choices)}"
    if key.default:
        about += f" [{key.default.strip('[]') or 'none'}]"
    name = f"[{key.table}] {key.name}" if key.table and key.tasks else key.name
    stated = EXAMPLE.get((key.table, key.name))
    entry = f"# {name} = ..." if stated is None else f"{key.name} = {stated}"
    return f"{entry:<40}  # {about}"


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
            raise OptionError(f"{folder / name} exists already; give a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.toml").write_text(example_job(folder), encoding="utf-8")
        (folder / SCHEMA).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
        for k, hospital in enumerate(HOSPITALS):
            (folder / f"{hospital}.csv").write_text(_table(np.random.default_rng([seed, k]), k), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{folder} cannot be written ({error}); give another folder") from error
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
