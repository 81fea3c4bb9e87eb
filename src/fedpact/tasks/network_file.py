"""A network that a function of a Python file builds: `model = "network.py:build"` in a job.

    def build(inputs: int, outputs: int) -> torch.nn.Module

The module maps a tensor of features, (rows, inputs), to scores, (rows, outputs). Its file is code, and code never
travels: a job names it with its digest, and every machine runs a file of its own, which must have that digest.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from fedpact.errors import OptionError
from fedpact.functions.torch_adapter import import_torch

#: Between the file and the function in it.
OF = ":"
#: Rows that a new module is tried on: two, so that one of them cannot be taken for an axis of size one.
TRIED = 2
#: PyTorch has one random number generator a process.
DRAWING = Lock()


@dataclass(frozen=True)
class NetworkFile:
    """A Python file with a function that builds a network.

    model:  the file and its function, as the job has them
    path:   where the file is on this machine
    digest: SHA-256 of the file that the job means
    """

    model: str
    path: str
    digest: str

    @classmethod
    def find(cls, model: str, folder: Path | None = None) -> NetworkFile:
        """The file that `model` names. folder: what its path is relative to; by default where Python runs

        Raises OptionError when it cannot be read.
        """
        file = model.rpartition(OF)[0]
        path = ((folder or Path()) / file).resolve()
        return cls(model, str(path), sha256(_read(path)).hexdigest())

    @property
    def function(self) -> str:
        return self.model.rpartition(OF)[2]

    def read(self) -> bytes:
        """The file, if it is the one that the job means. Raises OptionError when it is not."""
        return _read_checked(self)

    def build(self, inputs: int, outputs: int, seed: int) -> Any:
        """Run the file, and build the module with parameters drawn from this seed; not to be changed by the caller.

        Raises OptionError for a file that is absent, another one, or no Python, and for a module that cannot be
        trained: see `_try`.
        """
        return _build(self, inputs, outputs, seed)


def names_file(model: str) -> bool:
    """Whether a model is stated as a file and a function in it."""
    file, _, function = model.rpartition(OF)
    return file.endswith(".py") and function.isidentifier()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(
            f"the Python file of the model cannot be read ({error}); correct its path, or put it there",
            code="FP-OPTION-910",
            key="model",
        ) from error


@lru_cache(maxsize=16)  # a file that is edited while a run goes on does not end it
def _read_checked(file: NetworkFile) -> bytes:
    source = _read(Path(file.path))
    found = sha256(source).hexdigest()
    if found != file.digest:
        raise OptionError(
            f"{file.path} is not the file of this job: its SHA-256 is {found}, the job's is {file.digest}; put the "
            "file of the job there, byte for byte, or begin another run",
            code="FP-OPTION-911",
            key="model",
        )
    return source


@lru_cache(maxsize=16)  # whoever builds a loss, or scores rows, asks for the same few
def _build(file: NetworkFile, inputs: int, outputs: int, seed: int) -> Any:
    torch = import_torch("a network")
    source = file.read()
    called = f"{file.path}: {file.function}({inputs}, {outputs})"
    with DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = _find_function(file, source)(inputs, outputs)
        except OptionError:
            raise
        except Exception as error:
            raise _fail("FP-OPTION-913", f"{called} failed with {type(error).__name__}: {error}; correct it") from error
        _try(torch, module, inputs, outputs, called)
    return module


def _find_function(file: NetworkFile, source: bytes) -> Any:
    """Run the file, and take the function from it.

    Only what the file itself defines: a coordinator that names a function must not reach what a site's file imports.
    """
    content = ModuleType(f"fedpact_network_{file.digest}")
    content.__file__ = file.path
    sys.modules[content.__name__] = content  # dataclasses look there for the module that defines them
    exec(compile(source, file.path, "exec"), content.__dict__)
    found = getattr(content, file.function, None)
    if not callable(found) or getattr(found, "__module__", None) != content.__name__:
        raise _fail("FP-OPTION-912", f"{file.path} defines no function {file.function}(inputs, outputs); define it")
    return found


def _try(torch: Any, module: Any, inputs: int, outputs: int, called: str) -> None:
    """Score two rows of zeros. Raise OptionError unless the module gives scores that follow from its parameters."""
    if not isinstance(module, torch.nn.Module) or not any(p.requires_grad for p in module.parameters()):
        raise _fail(
            "FP-OPTION-914",
            f"{called} returned {type(module).__name__}; return a torch.nn.Module with parameters to train",
        )
    tried = deepcopy(module).double()
    buffers = [buffer.clone() for buffer in tried.buffers()]
    drawn = torch.get_rng_state()
    try:
        with torch.no_grad():
            scores = tried(torch.zeros(TRIED, inputs, dtype=torch.float64))
    except Exception as error:
        raise _fail(
            "FP-OPTION-915",
            f"{called} returned a module that fails on features of shape ({TRIED}, {inputs}) in float64, with "
            f"{type(error).__name__}: {error}; correct it",
        ) from error
    shape = tuple(getattr(scores, "shape", ()))
    if shape != (TRIED, outputs):
        raise _fail(
            "FP-OPTION-916",
            f"{called} returned a module that makes {shape} of features of shape ({TRIED}, {inputs}); return one that "
            f"gives (rows, {outputs}): a score for each class, or one for two classes",
        )
    changed = not all(torch.equal(*pair) for pair in zip(buffers, tried.buffers(), strict=True))
    if changed or not torch.equal(drawn, torch.get_rng_state()):
        raise _fail(
            "FP-OPTION-917",
            f"{called} returned a module that is random (dropout), or remembers the rows it has seen (batch "
            "normalisation); take those layers out, or use GroupNorm or LayerNorm",
        )


def _fail(code: str, message: str) -> OptionError:
    return OptionError(message, code=code, key="model")
