"""`fedpact bench neyman-pearson`: Algorithm 1 of He24 beside its Algorithm 3 and the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import click

from fedpact.errors import FedpactError
from fedpact_experiments.bench.measure import measure, measure_conic, measure_scipy, say
from fedpact_experiments.bench.output import MARKDOWN, SEED, budget_of
from fedpact_experiments.bench.problems import BOUND, NEYMAN_PEARSON, Instance
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several
from fedpact_experiments.tables import show_rows

SETS = [name for name in NEYMAN_PEARSON if name != "synthetic"]
#: The conic program of these would be too large: SciPy's SLSQP gives their optimum.
LARGE = ("adult",)
#: A change of the objective by the square of this ends SLSQP.
TIGHT = 1e-5


@click.command("neyman-pearson")
@among("--problems", SETS)
@several("--owners", COUNT, [1, 5, 10, 20], "Numbers of owners.")
@several("--tol", TOLERANCE, [1e-3], "Tolerances of the certificate.")
@DATA
@SEED
@budget_of(600)
@MARKDOWN
def neyman_pearson(
    problems: Sequence[str],
    owners: Sequence[int],
    tol: Sequence[float],
    folder: str | None,
    seed: int,
    budget: float,
    markdown: bool,
) -> None:
    """Algorithm 1 of He, Peng and Sun against their Algorithm 3 and the optimum, on the data sets of their Table 1.

    The optimum is that of another solver on pooled data: Clarabel through cvxpy, or SciPy's SLSQP where the conic
    program would be too large (adult). Differences are relative to the second of the pair.

    \b
    fedpact bench neyman-pearson --data DIR                  all of it, about half an hour on two cores
    fedpact bench neyman-pearson --data DIR --problems monks-1 --owners 5
    """
    table = [
        _row(NEYMAN_PEARSON[name](n, folder, seed), limit, budget, seed)
        for name, limit, n in product(problems, tol, owners)
    ]
    show_rows(table, markdown, text=("optimum", "status 1 / 3"))


def _row(instance: Instance, tol: float, budget: float, seed: int) -> dict[str, str]:
    say(instance, "optimum and both algorithms", tol)
    if instance.name in LARGE:
        best = measure_scipy(instance, "SLSQP", TIGHT, budget)
        source = "SLSQP"
    else:
        best = measure_conic(instance, budget)
        source = "Clarabel"
    one, answer = measure(instance, "proximal-al", tol, budget, seed)
    three, _ = measure(instance, "centralized-proximal-al", tol, budget, seed)
    if answer is None or not (best.objective and one.objective and three.objective):
        raise FedpactError(f"{instance}: {best.status}, {one.status}, {three.status} {best.note}{one.note}{three.note}")
    held = [share.constraint for share in instance.problem.shares if share.constraint is not None]
    return {
        "set": instance.name,
        "n": str(instance.owners),
        "d": str(instance.dim),
        "tol": f"{tol:g}",
        "optimum": f"{best.objective:.5f} ({source})",
        "Alg. 1": f"{one.objective:.5f}",
        "Alg. 3": f"{three.objective:.5f}",
        "1 vs 3": f"{abs(one.objective - three.objective) / three.objective:.1e}",
        "1 vs optimum": f"{abs(one.objective - best.objective) / best.objective:.1e}",
        "max class-1 loss": f"{max(float(bound.function.value(answer.w)[0]) + BOUND for bound in held):.5f}",
        "status 1 / 3": f"{one.status} / {three.status}",
        "outer": str(len(answer.history.outer)),
        "exchanges": str(one.exchanges),
        "MB": f"{answer.communication.bytes / 1e6:.1f}",
        "s, Alg. 1": f"{one.seconds:.1f}",
        "s, Alg. 3": f"{three.seconds:.1f}",
    }
