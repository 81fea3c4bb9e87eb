"""Adult income at six employers: a network that finds the well paid among women as often as among men, at each of them.

    python examples/adult_network/tables.py adult --data FOLDER     FOLDER holds adult.data; default: FEDPACT_DATA
    fedpact run adult/job.toml
    fedpact report adult/run
    fedpact evaluate adult/run

The first line writes the tables of six employers, the work classes of the census, and the job into the folder `adult`.
The job asks for a ReLU network with two hidden layers whose recall of incomes above 50K differs by at most 0.02 between
men and women at each employer: equal opportunity. promise.toml asks for a recall of at least 0.8 at each employer on
people not yet seen, with confidence 0.95. Nobody trains on the rows of adult.test. It needs
pip install '.[torch]', and pip install -e experiments for the loader.
"""

from __future__ import annotations

import argparse
import csv
import shutil
from pathlib import Path

import numpy as np

from fedpact_experiments.datasets.adult import FIELDS, adult_rows, without_missing

JOBS = [Path(__file__).with_name(name) for name in ("job.toml", "promise.toml")]
#: Work class -> name of the table; the 14 people without pay are with the self-employed without a company.
EMPLOYERS = {
    "Federal-gov": "federal",
    "Local-gov": "local",
    "Private": "private",
    "Self-emp-inc": "company",
    "Self-emp-not-inc": "own",
    "State-gov": "state",
    "Without-pay": "own",
}


def write(folder: Path, rows: np.ndarray, suffix: str) -> None:
    """A table for each employer."""
    employer = np.array([EMPLOYERS[name] for name in rows[:, FIELDS.index("workclass")]])
    for name in sorted(set(EMPLOYERS.values())):
        with (folder / f"{name}{suffix}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow([*FIELDS, "income"])
            lines.writerows(rows[employer == name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tables and job go")
    parser.add_argument("--data", type=Path, default=None, help="folder with adult.data and adult.test")
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder, without_missing(adult_rows("adult.data", options.data)), "")
    write(options.folder, without_missing(adult_rows("adult.test", options.data)), "_new")
    for job in JOBS:
        shutil.copy(job, options.folder)
    job = options.folder / "job.toml"
    print(f"wrote {job} and the tables of six employers; next: fedpact run {job}")


if __name__ == "__main__":
    main()
