"""Smooth functions and maps: what the owners minimise and what they agreed to keep below zero."""

from fedpact.functions.affine import Affine
from fedpact.functions.base import Function, Indices, Map, Matrix, Vector
from fedpact.functions.callables import Smooth, SmoothMap
from fedpact.functions.extended import extend
from fedpact.functions.jax_adapter import from_jax, parameters_from_jax, parameters_to_jax
from fedpact.functions.logistic import LogisticLoss
from fedpact.functions.maps import Stack, TwoSided, as_map
from fedpact.functions.mean_probability import MeanProbability
from fedpact.functions.operators import Linear, Operator, Saddle
from fedpact.functions.quadratic import Quadratic
from fedpact.functions.softmax import SoftmaxLoss
from fedpact.functions.torch_adapter import from_torch, parameters_from_torch, parameters_to_torch

__all__ = [
    "Affine",
    "Function",
    "Indices",
    "Linear",
    "LogisticLoss",
    "Map",
    "Matrix",
    "MeanProbability",
    "Operator",
    "Quadratic",
    "Saddle",
    "Smooth",
    "SmoothMap",
    "SoftmaxLoss",
    "Stack",
    "TwoSided",
    "Vector",
    "as_map",
    "extend",
    "from_jax",
    "from_torch",
    "parameters_from_jax",
    "parameters_from_torch",
    "parameters_to_jax",
    "parameters_to_torch",
]
