"""A digest of what an owner holds: the same for the same content in every process, another when one number differs.

Objects of fedpact's classes, and of classes derived from them, count with all that they hold. A user's function counts
by its code, its defaults, the numbers it closes over, and all arrays that it can reach: closed over, held by objects or
named globally. Numbers inside the user's own objects and lists do not count, for they may be counters of calls.
"""

from __future__ import annotations

import contextlib
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
PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, range, np.generic)
#: Told in full by their name.
NAMED = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)


def digest(thing: object) -> str:
    """SHA-256 of the content, in hexadecimal."""
    walk = _Walk()
    walk.add(thing)
    return walk.found.hexdigest()


class _Walk:
    """Visits an object and all that it holds."""

    def __init__(self) -> None:
        self.found = hashlib.sha256()
        self._above: set[int] = set()  # ids of the objects that hold the present one

    def add(self, value: Any, strict: bool = True) -> None:
        """strict: numbers, texts and the structure count as well, not only arrays and functions."""
        if isinstance(value, PLAIN):
            self._note(repr(value), strict)
        elif isinstance(value, NAMED):
            self._note(_name(value), strict)
        elif isinstance(value, os.PathLike):
            self._note(os.fspath(value), strict)
        elif sp.issparse(value):
            self._add_sparse(value)
        elif hasattr(value, "__array__"):
            self._add_array(_array(value))
        elif id(value) not in self._above:
            self._above.add(id(value))
            self._add_parts(value, strict)
            self._above.remove(id(value))

    def _add_parts(self, value: Any, strict: bool) -> None:
        if isinstance(value, types.FunctionType):
            self._add_function(value)
            return
        if isinstance(value, functools.partial):
            self._add_given([value.func, *value.args, *value.keywords, *value.keywords.values()])
            return
        if not isinstance(value, Mapping | Set | list | tuple):
            strict = _is_ours(type(value))
        self._note(f"begin {_name(type(value))}", strict)
        for part in _parts(value):
            self.add(part, strict)
        self._note("end", strict)

    def _add_function(self, function: types.FunctionType) -> None:
        self._add_code(function.__code__)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._add_given([*defaults, *(cell.cell_contents for cell in function.__closure__ or ())])
        for name, value in _named_data(function):
            self._note(name)
            self.add(value)

    def _add_given(self, values: list[Any]) -> None:
        """What a function was given: its own numbers count, those inside of objects and lists may be its notes."""
        for value in values:
            self.add(value, strict=isinstance(value, PLAIN))

    def _add_code(self, code: types.CodeType) -> None:
        self._note(code.co_code)
        self._note(repr(code.co_names))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant)
            else:
                self.add(constant)

    def _add_array(self, array: NDArray[Any]) -> None:
        self._note(f"{array.dtype.str} {array.shape}")
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self.found.update(np.ascontiguousarray(array).ravel().view(np.uint8).data)

    def _add_sparse(self, matrix: Any) -> None:
        rows = matrix.tocsr()
        self._note(f"sparse {rows.shape}")
        for array in (rows.data, rows.indices, rows.indptr):
            self._add_array(array)

    def _note(self, text: str | bytes, counts: bool = True) -> None:
        if counts:
            data = text
            if isinstance(data, str):
                data = data.encode()
            self.found.update(f"{type(text).__name__} {len(data)} ".encode())
            self.found.update(data)


def _is_ours(kind: type) -> bool:
    return any(base.__module__.startswith("fedpact.") for base in kind.__mro__)


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', thing.__name__)}"


def _array(value: Any) -> NDArray[Any]:
    """The numbers of an array, a table, or a tensor that may belong to a graph of gradients."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


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
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    else:
        with contextlib.suppress(TypeError):  # of what cannot be pickled: sockets and the like
            yield value.__getstate__()  # all attributes, or what pickling would keep


def _named_data(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Arrays, and functions of its own module, that a function finds by global names."""
    module = function.__globals__
    for name in sorted(_names(function.__code__)):
        if name in module and _is_data(module[name], module):
            yield name, module[name]


def _is_data(value: object, module: dict[str, Any]) -> bool:
    if isinstance(value, types.FunctionType):
        return value.__globals__ is module
    return not isinstance(value, type) and (sp.issparse(value) or hasattr(value, "__array__"))


def _names(code: types.CodeType) -> set[str]:
    """Global names of a function and of those defined inside it."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)
