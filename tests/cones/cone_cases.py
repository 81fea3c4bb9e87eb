"""The one list of cones, with what the tests need to know about each from its definition alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from fedpact.cones import PSD, Cone, Exponential, Nonnegative, Product, SecondOrder, Zero, smat, svec


@dataclass(frozen=True)
class Bare(Cone):
    """A user's cone: only the abstract methods, so that every default of `Cone` is at work; not symmetric."""

    inner: Cone

    @property
    def dim(self):
        return self.inner.dim

    def project(self, v):
        return self.inner.project(v)

    def project_dual_jacobian(self, v):
        return self.inner.project_dual_jacobian(v)

    def project_normal(self, v, multiplier):
        return self.inner.project_normal(v, multiplier)


@dataclass(frozen=True)
class Rotated(Cone):
    """A user's symmetric cone: {(u, v, x) : |x|^2 <= 2 u v, u >= 0, v >= 0}.

    It is Q K for the second-order cone K and the symmetric orthogonal Q that takes (u, v) to (u + v, u - v) / sqrt(2).
    """

    dim: int
    symmetric = True
    degree = 1

    @property
    def inner(self):
        return SecondOrder(self.dim)

    @property
    def turn(self):
        matrix = np.eye(self.dim)
        matrix[:2, :2] = np.array([[1.0, 1.0], [1.0, -1.0]]) * np.sqrt(0.5)
        return matrix

    def project(self, v):
        return self.turn @ self.inner.project(self.turn @ v)

    def project_dual(self, v):
        return self.project(v)

    def project_dual_jacobian(self, v):
        return self.turn @ self.inner.project_dual_jacobian(self.turn @ v) @ self.turn

    def project_normal(self, v, multiplier):
        return self.turn @ self.inner.project_normal(self.turn @ v, self.turn @ multiplier)

    def identity(self):
        return self.turn @ self.inner.identity()

    def move_inside(self, v, margin):
        return self.turn @ self.inner.move_inside(self.turn @ v, margin)

    def inverse(self, s):
        return self.turn @ self.inner.inverse(self.turn @ s)

    def scaling(self, s, z):
        return self.turn @ self.inner.scaling(self.turn @ s, self.turn @ z) @ self.turn

    def longest_step(self, s, ds):
        return self.inner.longest_step(self.turn @ s, self.turn @ ds)


CONES = [
    Zero(3),
    Nonnegative(1),
    Nonnegative(4),
    SecondOrder(1),
    SecondOrder(2),
    SecondOrder(5),
    PSD(1),
    PSD(2),
    PSD(4),
    Exponential(),
    Product([Nonnegative(2), Zero(2)]),
    Product([Nonnegative(2), SecondOrder(3), PSD(2), SecondOrder(2)]),
    Product([Zero(1), Product([PSD(2), Nonnegative(1)])]),
    Product([Zero(1), SecondOrder(3), Product([Exponential(), PSD(2)])]),
    Bare(SecondOrder(4)),
    Bare(Exponential()),
    Rotated(4),
]

SYMMETRIC = [cone for cone in CONES if cone.symmetric]


def split_blocks(cone: Product, v: np.ndarray) -> list[np.ndarray]:
    ends = np.cumsum([block.dim for block in cone.cones])
    return [v[end - block.dim : end] for block, end in zip(cone.cones, ends, strict=True)]


def margin(cone: Cone, v: np.ndarray) -> float:
    """How far v satisfies the inequalities that define the cone; negative outside. In units of v."""
    match cone:
        case Zero():
            return -float(np.abs(v).max())
        case Nonnegative():
            return float(v.min())
        case SecondOrder():
            return float(v[0] - np.linalg.norm(v[1:]))
        case PSD():
            return float(np.linalg.eigvalsh(smat(v))[0])
        case Exponential():
            x, y, z = v
            if y <= 0.0:
                return min(y, -x, z)
            exponent = min(x / y, 700.0)
            # over the gradient's length: then it is a distance to first order, however steep the surface
            return (z - y * math.exp(exponent)) / math.hypot(1.0, (1.0 + abs(exponent)) * math.exp(exponent))
        case Product():
            return min(margin(block, part) for block, part in zip(cone.cones, split_blocks(cone, v), strict=True))
        case Bare():
            return margin(cone.inner, v)
        case Rotated():
            return float((v[0] + v[1] - math.hypot(v[0] - v[1], *(math.sqrt(2.0) * v[2:]))) * math.sqrt(0.5))
    raise AssertionError(cone)


def member(cone: Cone, rng: np.random.Generator) -> np.ndarray:
    """A random point of K built from its definition: inside, or on the boundary half of the time."""
    slack = rng.exponential() * rng.integers(2)
    match cone:
        case Zero():
            return np.zeros(cone.dim)
        case Nonnegative():
            return rng.exponential(size=cone.dim) * rng.integers(2, size=cone.dim)
        case SecondOrder():
            x = rng.standard_normal(cone.dim - 1)
            return np.concatenate([[np.linalg.norm(x) + slack], x])
        case PSD():
            factor = rng.standard_normal((cone.order, rng.integers(1, cone.order + 1)))
            return svec(factor @ factor.T)
        case Exponential():
            if rng.integers(4) == 0:
                return np.array([-rng.exponential(), 0.0, rng.exponential()])
            rho = 3.0 * rng.standard_normal()
            return rng.exponential() * np.array([rho, 1.0, math.exp(rho) + slack])
        case Product():
            return np.concatenate([member(block, rng) for block in cone.cones])
        case Bare():
            return member(cone.inner, rng)
        case Rotated():
            x, u = rng.standard_normal(cone.dim - 2), rng.uniform(0.1, 2.0)
            return np.array([u, x @ x / (2.0 * u) + slack, *x])
    raise AssertionError(cone)


def interior(cone: Cone, rng: np.random.Generator) -> np.ndarray:
    """A random point of the interior built from its definition, not too near the boundary; 0 for equalities."""
    depth = rng.uniform(0.01, 2.0)
    match cone:
        case Zero():
            return np.zeros(cone.dim)
        case Nonnegative():
            return rng.exponential(size=cone.dim) + depth
        case SecondOrder():
            x = rng.standard_normal(cone.dim - 1)
            return np.concatenate([[np.linalg.norm(x) + depth], x])
        case PSD():
            factor = rng.standard_normal((cone.order, cone.order))
            return svec(factor @ factor.T + depth * np.eye(cone.order))
        case Product():
            return np.concatenate([interior(block, rng) for block in cone.cones])
        case Rotated():
            x, u = rng.standard_normal(cone.dim - 2), rng.uniform(0.1, 2.0)
            return np.array([u, x @ x / (2.0 * u) + depth, *x])
    raise AssertionError(cone)


def barrier(cone: Cone, s: np.ndarray) -> float:
    """The logarithmic barrier of the cone at a point of its interior."""
    match cone:
        case Zero():
            return 0.0
        case Nonnegative():
            return -float(np.log(s).sum())
        case SecondOrder():
            return -0.5 * math.log(s[0] ** 2 - s[1:] @ s[1:])
        case PSD():
            return -float(np.linalg.slogdet(smat(s)).logabsdet)
        case Product():
            return sum(barrier(block, part) for block, part in zip(cone.cones, split_blocks(cone, s), strict=True))
        case Rotated():
            return -0.5 * math.log(2.0 * s[0] * s[1] - s[2:] @ s[2:])
    raise AssertionError(cone)


@dataclass(frozen=True)
class Face:
    """A multiplier whose normal cone is known: `normal()` gives s in N as a cvxpy expression, and constraints."""

    label: str
    cone: Cone
    multiplier: np.ndarray
    normal: Callable[[], tuple[cp.Expression, list[cp.Constraint]]]

    def __str__(self) -> str:
        return f"{self.cone!r} {self.label}"


def ray(direction: np.ndarray) -> Callable[[], tuple[cp.Expression, list[cp.Constraint]]]:
    def build():
        t = cp.Variable(nonneg=True)
        return t * direction, []

    return build


def origin(dim: int) -> Callable[[], tuple[cp.Expression, list[cp.Constraint]]]:
    return lambda: (cp.Constant(np.zeros(dim)), [])


def zero_faces() -> list[Face]:
    return [Face("any", Zero(3), np.array([1.0, -2.0, 0.0]), origin(3))]


def nonnegative_faces() -> list[Face]:
    cone = Nonnegative(4)

    def normal(priced):
        def build():
            return cp.multiply(priced - 1.0, cp.Variable(4, nonneg=True)), []

        return build

    multipliers = {"zero": np.zeros(4), "boundary": np.array([2.0, 0.0, 0.5, 0.0]), "interior": np.ones(4)}
    return [Face(label, cone, mu, normal((mu > 0).astype(float))) for label, mu in multipliers.items()]


def second_order_faces(cone: Cone) -> list[Face]:
    def everything():
        s = cp.Variable(4)
        return -s, [cp.SOC(s[0], s[1:])]

    x = np.array([1.0, -2.0, 0.5])
    length = np.linalg.norm(x)
    return [
        Face("zero", cone, np.zeros(4), everything),
        Face("boundary", cone, np.array([length, *x]), ray(np.array([-length, *x]))),
        Face("axis", cone, np.array([1.0, 0.0, 0.0, -1.0]), ray(np.array([-1.0, 0.0, 0.0, -1.0]))),
        Face("interior", cone, np.array([length + 1.0, *x]), origin(4)),
    ]


def psd_faces() -> list[Face]:
    order = 4
    basis, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((order, order)))

    def normal(null):
        def build():
            inner = cp.Variable((null.shape[1], null.shape[1]), PSD=True)
            matrix = -null @ inner @ null.T
            entries = [matrix[i, j] * (1.0 if i == j else np.sqrt(2.0)) for j in range(order) for i in range(j, order)]
            return cp.hstack(entries), []

        return build

    faces = []
    for rank in range(order + 1):
        image, null = basis[:, :rank], basis[:, rank:]
        multiplier = svec((image * np.arange(1.0, rank + 1.0)) @ image.T)
        faces.append(Face(f"rank {rank}", PSD(order), multiplier, normal(null) if rank < order else origin(10)))
    return faces


def exponential_faces(cone: Cone) -> list[Face]:
    def everything():
        x, y, z = cp.Variable(), cp.Variable(), cp.Variable()
        return -cp.hstack([x, y, z]), [cp.ExpCone(x, y, z)]

    def quadrant():
        t = cp.Variable(2, nonneg=True)
        return cp.hstack([t[0], 0.0, -t[1]]), []

    faces = [
        Face("zero", cone, np.zeros(3), everything),
        Face("interior", cone, np.array([-1.0, 0.5, 2.0]), origin(3)),
        Face("(0, v, w)", cone, np.array([0.0, 1.0, 2.0]), ray(np.array([1.0, 0.0, 0.0]))),
        Face("(0, 0, w)", cone, np.array([0.0, 0.0, 3.0]), ray(np.array([1.0, 0.0, 0.0]))),
        Face("(0, v, 0)", cone, np.array([0.0, 0.7, 0.0]), quadrant),
    ]
    for rho in (-6.0, -1.0, 0.0, 0.4, 1.0, 5.0):
        # the plane <., mu> = 0 touches K along (rho, 1, e^rho), where y e^(x/y) - z has gradient -e^rho mu
        multiplier = np.array([-1.0, rho - 1.0, math.exp(-rho)])
        faces.append(Face(f"curved {rho}", cone, multiplier, ray(-np.array([rho, 1.0, math.exp(rho)]))))
    return faces


def product_faces() -> list[Face]:
    parts = [zero_faces()[0], nonnegative_faces()[1], second_order_faces(SecondOrder(4))[1], psd_faces()[3]]
    parts += [exponential_faces(Exponential())[0], second_order_faces(SecondOrder(4))[0]]

    def build():
        built = [part.normal() for part in parts]
        return cp.hstack([s for s, _ in built]), [constraint for _, some in built for constraint in some]

    multiplier = np.concatenate([part.multiplier for part in parts])
    return [Face("mixed", Product([part.cone for part in parts]), multiplier, build)]


FACES = [
    *zero_faces(),
    *nonnegative_faces(),
    *second_order_faces(SecondOrder(4)),
    *second_order_faces(Bare(SecondOrder(4))),
    *psd_faces(),
    *exponential_faces(Exponential()),
    *exponential_faces(Bare(Exponential())),
    *product_faces(),
]
