"""A two-layer network trained by five hospitals, each of which insists on a low loss on its own sick patients.

    python examples/neural_network.py        (pip install '.[torch]')

Sick patients (class 1) lie inside a circle that a straight line cannot cut out. First the network is trained without
constraints, then under "mean loss of class 1 at most BOUND" at every hospital: the recall of each is what that buys.
"""

from __future__ import annotations

import numpy as np
import torch

import fedpact as fp

HOSPITALS, ROWS, WIDTH, BOUND = 5, 200, 6, 0.3


def tables(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> (X, y); the circles differ a little."""
    rng = np.random.default_rng(seed)
    found = {}
    for i in range(1, HOSPITALS + 1):
        X = 1.2 * rng.standard_normal((ROWS, 2)) + 0.3 * rng.standard_normal(2)
        sick = rng.random(ROWS) < 1 / (1 + np.exp(6 * (np.linalg.norm(X, axis=1) - 1.0)))
        found[f"hospital {i}"] = X, sick.astype(float)
    return found


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
    rows = tables()
    start = fp.functions.parameters_from_torch(network)

    def of(name: str, label: int) -> fp.functions.Function:
        """The mean loss of one class at one hospital, as a function of the network's parameters."""
        X, y = rows[name]
        return fp.functions.from_torch(network, loss, (X[y == label], y[y == label]))

    everyone = {name: (of(name, 0), of(name, 1), float(np.mean(y))) for name, (_, y) in rows.items()}
    free = [
        fp.Share(((1 - part) * healthy + part * sick) / HOSPITALS, name=name)
        for name, (healthy, sick, part) in everyone.items()
    ]
    bounded = [
        fp.Share(healthy / HOSPITALS, fp.Constraint(sick - BOUND, fp.cones.Nonnegative(1)), name=name)
        for name, (healthy, sick, _) in everyone.items()
    ]
    before = fp.solve(fp.FederatedProblem(free, regularizer=fp.prox.SquaredL2(1e-3)), w0=start)
    after = fp.solve(fp.FederatedProblem(bounded, regularizer=fp.prox.SquaredL2(1e-3)), w0=before.w)

    def recall(name: str, w: np.ndarray) -> float:
        X, y = rows[name]
        fp.functions.parameters_to_torch(w, network)
        with torch.no_grad():
            found = network(torch.tensor(X[y == 1], dtype=torch.float32)).squeeze(-1) > 0
        return float(found.double().mean())

    print(f"{'':12} class-1 loss             recall")
    print(f"{'':12} before  after   bound    before  after    price")
    for name, price in zip(rows, after.multipliers[1:], strict=True):
        sick = everyone[name][1]
        print(
            f"{name:12} {sick.value(before.w):6.3f} {sick.value(after.w):6.3f} {BOUND:7.3f} "
            f"{recall(name, before.w):9.3f} {recall(name, after.w):6.3f} {price[0]:8.3f}"
        )
    print(f"without constraints {before}\nwith constraints    {after}\n{after.status}: {after.reason}")
    fp.functions.parameters_to_torch(after.w, network)  # the network is now the one that was found


if __name__ == "__main__":
    main()
