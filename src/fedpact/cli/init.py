"""`fedpact init`: an example job, with every key explained, and small made-up tables of three hospitals."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from fedpact.errors import OptionError

JOB = """\
# A job: what is trained, under which constraint, and at whom. Run it with: fedpact run {folder}/job.toml
# Paths are relative to this file. A key that is not needed may be left out; [ ] is its default.

title = "Three hospitals"

# neyman_pearson: the loss on one class is bounded at every owner, that on the others is as small as can be
# group_fairness: the gap between groups is bounded at every owner    (also: linear_qp, custom)
task = "neyman_pearson"

label = "relapse"                   # the column to predict
classes = ["no", "yes"]             # what it may be [0, 1]; more than two are fine
protected = "yes"                   # the class whose loss is bounded [the last one]
features = ["age", "dose", "pressure", "smoker"]    # [all other columns]

bound = 0.35                        # mean loss on the protected class at every owner, or one each in a table [bound]
# min_recall = 0.9                  # in its place: the recall each owner must have; the bounds are found

# for task = "group_fairness":
# group = "sex"                     # column of the groups
# groups = ["f", "m"]               # what it may be [0, 1]
# parity = "loss"                   # what is compared: loss, demographic_parity, equal_opportunity
# bound = 0.1                       # gap allowed at every owner

standardize = true                  # numeric columns get mean 0 and deviation 1 over all owners, from sums only
missing = "mean"                    # absent values: "mean" over all owners, or "error" [error]
regularization = 0.001              # weight of the squared norm of the model

[owners]                            # name = its table, CSV or Parquet; or flower://ADDRESS, see docs/how-to/flower.md
north = "north.csv"
south = "south.csv"
coast = "coast.csv"

[categories]                        # columns of text, and all they may hold; agreed, so that no owner tells its own
smoker = ["never", "former", "now"]

[solve]
tol = 1e-3                          # of the certificate
seed = 0
# method = "auto"                   # fedpact bench compares them
# engine = "in-process"             # or threads, ray
# secure_sum = true                 # the coordinator sees sums only; needs fedpact[secure]
# compare = true                    # train without constraints too, to show what they cost

[output]
folder = "run"
# messages = true                   # keep every message, for an auditor
# track = ["csv", "tensorboard"]    # curves while it runs; also mlflow
"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Of the made-up patients.")
def init(folder: Path, seed: int) -> None:
    """Write an example into FOLDER: job.toml with comments on every key, and tables of three hospitals.

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
        (folder / "job.toml").write_text(JOB.format(folder=folder), encoding="utf-8")
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
