"""Who is in every party's table, and in which order: in the clear, by keyed hashes, or by private set intersection."""

from fedpact.alignment.by_id import align, match, normalize
from fedpact.alignment.keyed_hash import align_by_keyed_hash, tags
from fedpact.alignment.people import MODES, Mode, People
from fedpact.alignment.private_intersection import Blinded, align_privately, blind, new_key, reblind

__all__ = [
    "MODES",
    "Blinded",
    "Mode",
    "People",
    "align",
    "align_by_keyed_hash",
    "align_privately",
    "blind",
    "match",
    "new_key",
    "normalize",
    "reblind",
    "tags",
]
