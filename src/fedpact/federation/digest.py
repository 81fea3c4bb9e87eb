"""A digest of what an owner holds: the same for the same content in every process, another when one number differs.

Objects count by their class and by what pickling would keep of them; functions by their code, their defaults, what they
close over, and the arrays and functions of their own module that they name. Libraries count by name only.
"""

from __future__ import annotations

import functools
import hashlib
import os
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

#: Told in full by their repr.
PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, range)


def digest(thing: object) -> str:
    """SHA-256 of the content, in hexadecimal."""
    walk = _Walk()
    walk.add(thing)
    return walk.found.hexdigest()


class _Walk:
    """Goes through an object and all that it holds."""

    def __init__(self) -> None:
        self.found = hashlib.sha256()
        self._above: list[int] = []  # ids of the objects that hold the present one

    def add(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._note(repr(value))
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.ufunc):
            self._note(_name(value))
        elif isinstance(value, os.PathLike):
            self._note(os.fspath(value))
        elif id(value) in self._above:
            self._note(f"the one {len(self._above) - self._above.index(id(value))} above")
        else:
            self._above.append(id(value))
            self._note(_name(type(value)))
            if sp.issparse(value):
                self._add_sparse(value)
            elif hasattr(value, "__array__"):
                self._add_array(_array(value))
            else:
                for part in _parts(value):
                    self.add(part)
            self._note("end")
            self._above.pop()

    def _note(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.found.update(f"{type(text).__name__} {len(data)} ".encode())
        self.found.update(data)

    def _add_array(self, array: NDArray[Any]) -> None:
        self._note(f"{array.dtype.str} {array.shape}")
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self.found.update(np.ascontiguousarray(array).ravel().view(np.uint8).data)

    def _add_sparse(self, matrix: Any) -> None:
        rows = matrix.tocsr()
        self._note(f"{rows.shape}")
        for array in (rows.data, rows.indices, rows.indptr):
            self._add_array(array)


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', thing.__name__)}"


def _array(value: Any) -> NDArray[Any]:
    """Of an array, a table, or a tensor that may belong to a graph of gradients."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _parts(value: Any) -> Iterator[object]:
    """What an object is made of, in an order that does not depend on the process."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield key
            yield value[key]
    elif isinstance(value, Set):
        yield from sorted(digest(item) for item in value)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__, cells, _named_data(value))
    elif isinstance(value, types.CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    else:
        yield value.__getstate__()


def _named_data(function: types.FunctionType) -> dict[str, object]:
    """Arrays, and functions of its own module, that a function finds by global names."""
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    return {name: value for name, value in found.items() if _is_data(value, function.__globals__)}


def _is_data(value: object, module: dict[str, Any]) -> bool:
    if isinstance(value, types.FunctionType):
        return value.__globals__ is module
    return not isinstance(value, type) and (sp.issparse(value) or hasattr(value, "__array__"))


def _names(code: types.CodeType) -> set[str]:
    """Global names of a function and of those defined inside it."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)
