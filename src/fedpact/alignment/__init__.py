"""Who is in every party's table, and in which order: in the clear, by keyed hashes, or by private set intersection."""

from fedpact.alignment.by_id import align, match
from fedpact.alignment.keyed_hash import align_by_keyed_hash, tags
from fedpact.alignment.private_intersection import Blinded, align_privately, blind, reblind

__all__ = [
    "Blinded",
    "align",
    "align_by_keyed_hash",
    "align_privately",
    "blind",
    "match",
    "reblind",
    "tags",
]
