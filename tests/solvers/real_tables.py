"""The problems of He24 on its data sets, made once for the tests of all methods."""

import numpy as np

from fedpact import data, tasks
from fedpact_experiments.datasets import adult_a, adult_b, breast_cancer_wisconsin, monks1

LOADERS = {"breast-cancer-wisc": breast_cancer_wisconsin, "monks-1": monks1, "adult": adult_a}


def neyman_pearson_owners(name, n, folder, seed=0):
    """Table 1: name -> (X, y), standardized, with an intercept; classes split evenly."""
    table = LOADERS[name](folder)
    X = data.with_intercept(data.standardize(table.X))
    parts = data.stratified(table.y, n, seed, drop_remainder=True)
    return {f"owner {i}": (X[rows], table.y[rows]) for i, rows in enumerate(parts, 1)}


def fairness(n, folder, seed=0):
    """Section 5.2 on adult-b: the problem, and the rows (X, y, group) of every bank and of the regulator."""
    tables = adult_b(folder)
    clients, server = tables.clients, tables.server
    parts = data.stratified(clients.y, n, seed)
    owners = {f"bank {i}": (clients.X[p], clients.y[p], clients.group[p]) for i, p in enumerate(parts)}
    holders = [*owners.values(), (server.X, server.y, server.group)]
    return tasks.group_fairness(owners, server=holders[-1], max_gap=0.1), holders


def largest_gap(holders, w):
    """The largest |mean loss of group 1 - mean loss of group 0| of any holder, written apart from the library."""
    gaps = []
    for X, y, group in holders:
        loss = np.logaddexp(0, X @ w) - y * (X @ w)
        gaps.append(abs(loss[group == 1].mean() - loss[group == 0].mean()))
    return max(gaps)
