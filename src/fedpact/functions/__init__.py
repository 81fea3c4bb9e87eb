"""Smooth functions (objectives) and maps (constraint functions) of one vector w."""

from fedpact.functions.affine import Affine
from fedpact.functions.base import Function, Indices, Map
from fedpact.functions.callables import Smooth, SmoothMap
from fedpact.functions.contributions import Contributions
from fedpact.functions.cox import CoxLoss
from fedpact.functions.extended import extend
from fedpact.functions.huber import HuberLoss
from fedpact.functions.jax_adapter import from_jax, parameters_from_jax, parameters_to_jax
from fedpact.functions.logistic import LogisticLoss
from fedpact.functions.maps import Stack, TwoSided, as_map
from fedpact.functions.mean_error import MeanError
from fedpact.functions.mean_probability import MeanProbability
from fedpact.functions.of_scores import OfScores
from fedpact.functions.operators import Linear, Operator, Saddle
from fedpact.functions.poisson import MeanExponential, NegativeBinomialDeviance, PoissonDeviance, PoissonLoss
from fedpact.functions.quadratic import Quadratic
from fedpact.functions.rates import CountedRates, SmoothedRate, SmoothedRates
from fedpact.functions.scored import ScoredMean
from fedpact.functions.softmax import SoftmaxLoss
from fedpact.functions.squared import SquaredLoss
from fedpact.functions.torch_adapter import from_torch, parameters_from_torch, parameters_to_torch
from fedpact.functions.torch_decisions import decisions_from_torch
from fedpact.types import Matrix, Vector

__all__ = [
    "Affine",
    "Contributions",
    "CountedRates",
    "CoxLoss",
    "Function",
    "HuberLoss",
    "Indices",
    "Linear",
    "LogisticLoss",
    "Map",
    "Matrix",
    "MeanError",
    "MeanExponential",
    "MeanProbability",
    "NegativeBinomialDeviance",
    "OfScores",
    "Operator",
    "PoissonDeviance",
    "PoissonLoss",
    "Quadratic",
    "Saddle",
    "ScoredMean",
    "Smooth",
    "SmoothMap",
    "SmoothedRate",
    "SmoothedRates",
    "SoftmaxLoss",
    "SquaredLoss",
    "Stack",
    "TwoSided",
    "Vector",
    "as_map",
    "decisions_from_torch",
    "extend",
    "from_jax",
    "from_torch",
    "parameters_from_jax",
    "parameters_from_torch",
    "parameters_to_jax",
    "parameters_to_torch",
]
