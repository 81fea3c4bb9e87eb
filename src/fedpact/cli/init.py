"""`fedpact init`: an example job with every key explained, and small synthetic tables of three hospitals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from fedpact.cli.own_table import LEFT_OUT, job_of_table, refuse_to_overwrite
from fedpact.jobs.keys import KEYS, LISTS, OPEN, JobKey, schema
from fedpact.report.files import explain_write_errors
from fedpact.tasks import TASKS, keys_of

#: (table, key) -> value in the example; all other keys are commented out, with a sample value.
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
#: Lines of the tables whose keys are names that the user chooses.
CATEGORIES = ['smoker = ["never", "former", "now"]']
#: Constraints of the example, commented out: each teaches something.
CONSTRAINTS = (
    ("recall at every owner, on the rows that the model is trained on", {"kind": '"recall"', "at_least": "0.8"}),
    (
        "a promise for patients not yet seen, with its confidence",
        {"kind": '"recall"', "of": '"yes"', "at_least": "0.8", "confidence": "0.95"},
    ),
    (
        "a gap between groups, which group = ... names above, promised as well",
        {"kind": '"equal_opportunity"', "at_most": "0.3", "confidence": "0.95"},
    ),
)
SCHEMA = "job.schema.json"
#: A comment lists the choices of a key if there are at most so many; the reference page has all.
LISTED = 5
HOSPITALS = ("north", "south", "coast")


def example_job(folder: Path) -> str:
    """A job file with a comment on every key, generated from the declaration of the keys."""
    lines = [
        f"#:schema ./{SCHEMA}",
        f"# A job: what is trained, under which constraint, and at whom. Run it with: fedpact run {folder}/job.toml",
        "# Paths are relative to this file. A key that is not needed may be left out; [ ] is its default.",
        "",
        *(f"# {name}: {kind.title}" for name, kind in TASKS.items()),
        *_task_lines(TASK),
        "",
        f"[owners]  # {OPEN['owners']}",
        *(f'{hospital} = "{hospital}.csv"' for hospital in HOSPITALS),
        "",
        f"[categories]  # {KEYS['', 'categories'].doc}",
        *CATEGORIES,
        "",
        f"# [bound]  # {OPEN['bound']}",
        *(f"# {hospital} = {EXAMPLE['', 'bound']}" for hospital in HOSPITALS),
        *_constraint_lines(),
    ]
    for table in dict.fromkeys(table for table, _ in KEYS if table and table not in LISTS):
        lines += _table_lines(table)
    lines += ["", f"# [roster]  # {OPEN['roster']}"]
    return "\n".join(lines) + "\n"


def _task_lines(task: str) -> list[str]:
    """The top-level keys: those of this task, then the additional ones of other tasks, commented out."""
    own = keys_of(TASKS[task])
    lines = ["", *(_line(key) for key in _top_keys() if not key.tasks or task in key.tasks)]
    for other, kind in TASKS.items():
        more = {name: key.doc for name, (_, _, key) in keys_of(kind).items() if name not in own or own[name][2] != key}
        if more:
            lines += ["", f'# for task = "{other}":']
            lines += [_line(replace(KEYS["", name], doc=doc), stated=False) for name, doc in more.items()]
    return lines


def _constraint_lines() -> list[str]:
    """What a constraint of the list is made of, and some that teach, commented out."""
    lines = ["", f"# {KEYS['', 'constraint'].doc}; all of them must hold. Its keys:"]
    for name in LISTS["constraint"]:
        key = KEYS["constraint", name]
        about = f"{key.doc}: {', '.join(key.choices)}" if key.choices else key.doc
        default = f" [{key.default}]" if key.default else ""
        lines.append(f"#   {name:<10}  {about}{default}")
    for about, stated in CONSTRAINTS:
        lines += ["", f"# [[constraint]]  # {about}", *(f"# {name} = {value}" for name, value in stated.items())]
    return lines


def _top_keys() -> list[JobKey]:
    """Top-level keys as the example's task explains them; tables and lists of tables stand below."""
    own = keys_of(TASKS[TASK])
    keys = []
    for key in KEYS.values():
        if key.table or key.kind == "levels" or key.name in LISTS:
            continue
        if key.name in own:
            key = replace(key, doc=own[key.name][2].doc)
        keys.append(key)
    return keys


def _table_lines(table: str) -> list[str]:
    """The keys of a table; its heading is commented out if the example sets none of them."""
    keys = [key for key in KEYS.values() if key.table == table]
    stated = any((key.table, key.name) in EXAMPLE for key in keys)
    heading = f"[{table}]" if stated else f"# [{table}]"
    lines = ["", heading, *map(_line, keys)]
    for name in OPEN:
        if name.startswith(f"{table}."):
            lines += ["", f"# [{name}]  # {OPEN[name]}"]
    return lines


def _line(key: JobKey, stated: bool = True) -> str:
    """A key with a value, its meaning and its default. stated: False to comment it out in any case."""
    about = key.doc
    if 0 < len(key.choices) <= LISTED and key.name != "task":
        about += f": {', '.join(key.choices)}"
    if key.table and key.tasks and TASK not in key.tasks:
        about += f" ({', '.join(key.tasks)})"
    if key.default:
        about += f" [{key.default.removeprefix('[').removesuffix(']') or 'none'}]"
    entry = f"# {key.name} = {key.example}"
    if stated and (key.table, key.name) in EXAMPLE:
        entry = f"{key.name} = {EXAMPLE[key.table, key.name]}"
    return f"{entry:<36}  # {about}"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--from", "table", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Your own table.")
@click.option("--label", metavar="COLUMN", help="--from: the column to predict.  [default: the last one]")
@click.option("--seed", default=0, show_default=True, help="Seed of the synthetic patients.")
def init(folder: Path, table: Path | None, label: str | None, seed: int) -> None:
    """Write an example into FOLDER: job.toml with comments on every key, and tables of three hospitals.

    With --from it is the job of your own table (CSV or Parquet): numbers and texts told apart, levels listed, ids left
    out, a recall of 0.8 for the rarer class asked for.

    job.schema.json lets editors with TOML schema support complete and check the keys.

    The patients are synthetic: numbers, a column of text and a few missing values, at hospitals that differ.

    \b
    fedpact init hospitals
    fedpact run hospitals/job.toml

    \b
    fedpact init adult --from adult.csv --label income
    fedpact run adult/job.toml
    """
    if table is not None:
        _init_from(folder, table, label)
        return
    if label is not None:
        raise click.UsageError("--label is for --from TABLE.")
    for name in ("job.toml", *(f"{hospital}.csv" for hospital in HOSPITALS)):
        refuse_to_overwrite(folder / name)
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.toml").write_text(example_job(folder), encoding="utf-8")
        (folder / SCHEMA).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
        for k, hospital in enumerate(HOSPITALS):
            text = _table(np.random.default_rng([seed, k]), k)
            (folder / f"{hospital}.csv").write_text(text, encoding="utf-8")
    click.echo(f"wrote {folder}/job.toml and {len(HOSPITALS)} tables; next: fedpact run {folder}/job.toml")


def _init_from(folder: Path, table: Path, label: str | None) -> None:
    """The job of a table that is there."""
    target = folder / "job.toml"
    refuse_to_overwrite(target)
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        text, predicted = job_of_table(folder, table, label)
        target.write_text(f"#:schema ./{SCHEMA}\n{text}", encoding="utf-8")
        (folder / SCHEMA).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
    for line in text.splitlines():
        if line.startswith(LEFT_OUT):
            click.echo(line.removeprefix("# "))
    hint = "" if label else ", the last column; --label names another"
    click.echo(f"wrote {target}, which predicts {predicted!r}{hint}; next: fedpact run {target}")


def _table(rng: np.random.Generator, hospital: int) -> str:
    """200 to 300 patients as CSV: relapse depends on age, dose, pressure and smoking; hospitals differ a little."""
    rows = 200 + 50 * hospital
    age = rng.normal(58 + 3 * hospital, 9, rows)
    dose = rng.gamma(4.0, 5.0, rows)
    pressure = rng.normal(130, 15, rows)
    smoker = rng.choice(["never", "former", "now"], rows, p=[0.5, 0.3, 0.2])
    score = 0.09 * (age - 60) - 0.06 * (dose - 20) + 0.03 * (pressure - 130) + (smoker == "now") - 0.8 + 0.3 * hospital
    relapse = rng.random(rows) < 1 / (1 + np.exp(-1.5 * score))
    absent = rng.random(rows) < 0.03
    lines = ["patient,age,dose,pressure,smoker,relapse"]
    for i in range(rows):
        measured = "" if absent[i] else f"{pressure[i]:.0f}"
        outcome = "yes" if relapse[i] else "no"
        lines.append(f"{hospital + 1}{i:04d},{age[i]:.0f},{dose[i]:.1f},{measured},{smoker[i]},{outcome}")
    return "\n".join(lines) + "\n"
