"""The barrier of the exponential cone, and the scaling of a slack and a multiplier that it gives.

    phi(x, y, z) = -log(psi) - log y - log z,     psi = y log(z / y) - x,

of degree 3. The cone is not symmetric: the multiplier lies in another cone than the slack, and no scaling point belongs
to both. Two shadows replace it: z~ = -grad phi(s) of the slack, and of the multiplier the s~ with -grad phi(s~) = z. D
is the symmetric matrix with D s = z and D s~ = z~ that is nearest to mu hess phi(s) in the sense of a BFGS update
(Tuncel 2001; Dahl and Andersen 2022, "A primal-dual interior-point algorithm for nonsymmetric exponential-cone
optimization").

Where rounding has put a point on the boundary, numbers here are infinite or NaN, and nothing is raised.
"""

from __future__ import annotations

import numpy as np
from scipy.special import wrightomega

from fedpact.types import Matrix, Vector

#: The point with -grad phi(e) = e: it lies in the interior of both K and K*.
CENTRE = np.array([-0.8278383990656786, 0.8051020015847954, 1.290927709856958])
#: <s, z> <s~, z~> / 9 is 1 on the central path, where z and z~ are parallel; nearer than this they count as such.
PARALLEL = 1e-8


@np.errstate(all="ignore")
def slope(s: Vector) -> Vector:
    """-grad phi(s), in the interior of K*."""
    x, y, z = s
    ratio = np.log(z / y)
    psi = y * ratio - x
    return np.array([-1 / psi, (ratio - 1) / psi + 1 / y, y / (z * psi) + 1 / z])


@np.errstate(all="ignore")
def curvature(s: Vector) -> Matrix:
    """hess phi(s)."""
    x, y, z = s
    ratio = np.log(z / y)
    psi = y * ratio - x
    gradient = np.array([-1.0, ratio - 1, y / z])  # of psi
    bent = np.array([[0.0, 0.0, 0.0], [0.0, -1 / y, 1 / z], [0.0, 1 / z, -y / z**2]])  # its Hessian
    barriers = np.diag([0.0, 1 / y**2, 1 / z**2])
    return np.asarray(np.outer(gradient, gradient) / psi**2 - bent / psi + barriers)


@np.errstate(all="ignore")
def shadow(multiplier: Vector) -> Vector:
    """The s~ of the interior of K with -grad phi(s~) = multiplier, which lies in the interior of K*.

    With multiplier = (-a, v, w) the unknown p = 1/y + a solves p + a log(p) = v + 2 a + a log(w): Wright's omega.
    """
    u, v, w = multiplier
    a = -u
    omega = wrightomega(v / a + 2 + np.log(w / a))
    y = 1 / (a * (omega - 1))
    z = (1 + a * y) / w
    return np.array([y * np.log(z / y) - 1 / a, y, z])


@np.errstate(all="ignore")
def scale(s: Vector, multiplier: Vector) -> Matrix:
    """D of the module docstring; mu hess phi(s) where the pair is central, or too near the boundary for its shadows."""
    mean = float(s @ multiplier) / 3
    primal = mean * curvature(s)
    near = np.column_stack([s, shadow(multiplier)])
    far = np.column_stack([multiplier, slope(s)])
    moved = primal @ near
    if not np.all(np.isfinite(moved)):
        return primal
    paired = near.T @ far
    paired = 0.5 * (paired + paired.T)
    apart = float(np.linalg.det(paired)) > PARALLEL * float(paired[0, 1]) ** 2
    axis = np.cross(near[:, 0], near[:, 1])
    length = float(np.linalg.norm(axis))
    if not apart or length == 0.0:
        return primal
    axis /= length
    try:
        # What mu hess phi(s) has in the one direction that the two equations leave free.
        left = float(axis @ primal @ axis) - float(axis @ moved @ np.linalg.solve(near.T @ moved, moved.T @ axis))
        found = far @ np.linalg.solve(paired, far.T)
    except np.linalg.LinAlgError:
        return primal
    found = 0.5 * (found + found.T) + max(left, 0.0) * np.outer(axis, axis)
    if not np.all(np.isfinite(found)):
        return primal
    return np.asarray(found)
