"""Secure sums: exact arithmetic, keys and masks, what the server can read, and what happens when an owner drops out."""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import math
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import slow_but
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative
from fedpact.engines import InProcess
from fedpact.errors import OwnerError, OwnerLost
from fedpact.federation import (
    Fleet,
    Largest,
    Order,
    Owner,
    Reply,
    Sealed,
    Session,
    Step,
    Summed,
    read_record,
    secure_sum,
)
from fedpact.federation import owner as owner_module
from fedpact.federation import tickets as tickets_module
from fedpact.federation.messages import FITTING, Fitted, Fitting, hidden_fields, seal, summed_fields
from fedpact.federation.remote import RemoteFleet, Site
from fedpact.federation.secure_sum import (
    BITS,
    FRACTION,
    WORDS,
    Agree,
    Fit,
    Keys,
    Offer,
    Peers,
    agree,
    decode,
    encode,
    offer,
    protect,
)
from fedpact.federation.wire import STEPS, reply_type
from fedpact.functions import Affine, Quadratic
from fedpact.solvers import Progress

#: Numbers are integers modulo this.
MODULUS = 1 << 64 * WORDS
NAMES = ("north", "south", "west")
#: Doubles from here on have no digit below 2^-FRACTION.
EXACT = 2.0 ** (52 - FRACTION)

# ----------------------------------------------------------------------------------------------------------- arithmetic


def whole(words: np.ndarray) -> list[int]:
    """Each row of words as the number in [0, MODULUS) that it stands for."""
    return [functools.reduce(lambda high, low: high << 64 | low, row) for row in words.tolist()]


def rows(numbers: list[int]) -> np.ndarray:
    parts = [[(x % MODULUS) >> 64 * (WORDS - 1 - k) & (2**64 - 1) for k in range(WORDS)] for x in numbers]
    return np.array(parts, dtype=np.uint64).reshape(len(numbers), WORDS)


LIMIT = 2.0**BITS
doubles = st.floats(-LIMIT, LIMIT, allow_nan=False)
residues = st.integers(0, MODULUS - 1)


@settings(deadline=None, max_examples=300)
@given(st.lists(doubles, max_size=8))
def test_encoding_cuts_off_below_the_last_bit_and_nothing_else(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    assert whole(encode(array)) == [math.trunc(Fraction(v) * 2**FRACTION) % MODULUS for v in values]
    back = decode(encode(array))
    large = np.abs(array) >= EXACT
    assert np.array_equal(back[large], array[large])
    assert np.all(np.abs(back - array) < 2.0**-FRACTION)
    assert np.all(np.abs(back) <= np.abs(array))


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 5e-324, -2.2e-308, 2.0**-64, -(2.0**-64), 2.0**-65, 2.0**-11, -(2.0**-12), np.nextafter(2.0**-11, 1.0),
     0.1, -1 / 3, 1 - 2.0**-53, 1.0, 2.0**53 + 2, -(2.0**61), np.nextafter(LIMIT, 0.0), LIMIT, -LIMIT],
)  # fmt: skip
def test_numbers_at_the_edges_come_back(value: float) -> None:
    (back,) = decode(encode(np.array([value])))
    assert abs(back - value) < 2.0**-FRACTION
    assert back == value or abs(value) < EXACT


@settings(deadline=None)
@given(st.lists(st.tuples(residues, residues), min_size=1, max_size=8))
def test_add_and_negative_are_arithmetic_modulo_a_power_of_two(pairs: list[tuple[int, int]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    assert whole(rows(a)) == a
    assert whole(secure_sum.add(rows(a), rows(b))) == [(x + y) % MODULUS for x, y in pairs]
    assert whole(secure_sum.negative(rows(a))) == [-x % MODULUS for x in a]


@pytest.mark.parametrize("x", [0, 1, 2**64 - 1, 2**64, MODULUS // 2**64 - 1, MODULUS // 2, MODULUS - 1])
def test_carries_go_all_the_way(x: int) -> None:
    for y in (1, x, MODULUS - 1 - x, -x % MODULUS):
        assert whole(secure_sum.add(rows([x]), rows([y]))) == [(x + y) % MODULUS]
    assert whole(secure_sum.negative(rows([x]))) == [-x % MODULUS]


@settings(deadline=None)
@given(st.integers(-(2 ** (BITS + FRACTION)), 2 ** (BITS + FRACTION)))
def test_decoding_is_right_to_the_last_digit(number: int) -> None:
    (found,) = decode(rows([number]))
    exact = Fraction(number, 2**FRACTION)
    assert abs(Fraction(float(found)) - exact) <= Fraction(float(np.spacing(abs(found))))


# ----------------------------------------------------------------------------------------------------------------- keys


def agreed(names: tuple[str, ...] = NAMES, run: str = "r1") -> list[Keys]:
    """The keys of owners that have just agreed."""
    offers = [offer(Peers(name), None, Offer(run=run)) for name in names]
    order = Agree(run=run, names=json.dumps(names), publics=json.dumps([reply.public for _, reply in offers]))
    return [agree(Peers(name), keys, order)[0] for name, (keys, _) in zip(names, offers, strict=True)]


def public_of(keys: Keys) -> str:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(keys.private)).public_key().public_bytes_raw().hex()


@pytest.mark.parametrize("n", [2, 3, 7])
def test_masked_parts_add_up_to_the_exact_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.standard_normal((n, 400)) * 10.0 ** rng.integers(-25, 17, (n, 400))
    values[:, :3] = [[LIMIT / n, -(LIMIT) / n, 0.0]] * n
    keys = agreed(tuple(f"owner {i}" for i in range(n)))
    parts = [protect(v, k, "message") for v, k in zip(values, keys, strict=True)]
    plain = [sum(column) % MODULUS for column in zip(*(whole(encode(v)) for v in values), strict=True)]
    assert whole(functools.reduce(secure_sum.add, parts)) == plain
    for part, v in zip(parts, values, strict=True):
        assert not set(whole(part)) & set(whole(encode(v)))
    total = secure_sum.reveal(parts)
    exact = np.array([math.fsum(column) for column in values.T])
    assert np.all(np.abs(total - exact) <= n * 2.0**-FRACTION + np.spacing(np.abs(exact)))


@dataclass(frozen=True, kw_only=True)
class Mixed(Reply):
    matrix: Fitting[np.ndarray]
    slope: Summed[np.ndarray]
    worst: Largest[float]


@settings(deadline=None, max_examples=100)
@given(
    st.integers(2, 9),
    st.floats(1e-30, 1e30),
    st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    st.booleans(),
)
def test_sums_of_a_width_that_fits_are_exact_to_their_last_bit(
    n: int, largest: float, factors: list[float], coarse: bool
) -> None:
    """64 bits: 62 less those for the owners, in units of two columns; 128 bits: more than a double has."""
    keys = agreed(tuple(f"owner {i}" for i in range(n)))
    values = largest * np.array(factors)
    reply = Mixed(matrix=values, slope=values, worst=1e-9)
    order = Fitted(run="r1", round=1, secure=True, largest=largest)
    if coarse:
        scales = np.array([1.0, 3.0], dtype=np.float32)
        order = replace(order, arrays=largest, coarse=largest, scales=scales)
    sealed = seal(reply, most=1e12)
    fit = secure_sum.fit_of(order, sealed, n)
    assert fit is not None
    parts = [protect(sealed.sums, own, "message", fit) for own in keys]
    words = 2 if coarse else 4
    assert parts[0].shape == (words * values.size + WORDS,)
    matrix, slope, worst = np.split(secure_sum.reveal(parts, fit), [values.size, 2 * values.size])
    grain = n * n * largest * 2.0 ** (-60 if coarse else -70)
    np.testing.assert_allclose(slope, n * values, rtol=1e-15, atol=grain)
    for found, value, unit in zip(matrix, values, [1.0, 3.0, 9.0], strict=True):
        np.testing.assert_allclose(found, n * value, rtol=1e-15, atol=unit * grain)
    np.testing.assert_allclose(worst, n * 1e-18, rtol=1e-10)


def test_a_number_that_does_not_fit_or_another_width_is_refused() -> None:
    keys = agreed()
    sealed = seal(Mixed(matrix=np.ones(3), slope=np.ones(3), worst=0.0), most=1e12)
    small = Fitted(run="r1", round=1, secure=True, largest=1e-30)
    fit = secure_sum.fit_of(small, sealed, 3)
    with raises_code("FP-OWNER-975", ""):
        protect(sealed.sums, keys[0], "message", fit)
    fits = replace(small, largest=1.0, coarse=2.0, scales=np.ones(2, dtype=np.float32))
    narrow = secure_sum.fit_of(fits, sealed, 3)
    with raises_code("FP-OWNER-975", ""):
        protect(sealed.sums, keys[0], "message", secure_sum.fit_of(replace(fits, coarse=0.1), sealed, 3))
    wide = secure_sum.fit_of(replace(small, largest=1.0), sealed, 3)
    parts = [protect(sealed.sums, own, "message", wide) for own in keys]
    with raises_code("FP-OWNER-976", ""):
        secure_sum.reveal(parts, narrow)


@pytest.mark.parametrize("rows", [0, 3, 100_000])
def test_scales_of_another_length_than_matrices_have_rows_are_refused(rows: int) -> None:
    """Before anything of their size is made: of 100,000 rows, units alone would take 40 GB."""
    sealed = seal(Mixed(matrix=np.ones(3), slope=np.ones(3), worst=0.0), most=1e12)
    scales = np.ones(rows, dtype=np.float32)
    order = Fitted(run="r1", round=1, secure=True, largest=1.0, coarse=2.0, scales=scales)
    with raises_code("FP-OWNER-977", "the scales"):
        secure_sum.fit_of(order, sealed, 3)


def test_the_key_of_a_pair_is_one_and_no_other_has_it() -> None:
    keys = agreed(tuple("abcdefg"))
    everyone = range(len(keys))
    assert all(keys[i].shared[j] == keys[j].shared[i] for i in everyone for j in everyone)
    assert all(keys[i].shared[i] == "" and keys[i].names == tuple("abcdefg") for i in everyone)
    pairs = {keys[i].shared[j] for i in everyone for j in range(i)}
    assert len(pairs) == len(keys) * (len(keys) - 1) // 2
    assert all(len(bytes.fromhex(key)) == 32 for key in pairs)
    assert len({k.private for k in keys}) == len(keys)


def test_keys_are_fresh_in_every_run_and_bound_to_it() -> None:
    first, second = agreed(), agreed()
    assert not {k.private for k in first} & {k.private for k in second}
    publics = json.dumps([public_of(k) for k in first])
    offered = Keys(first[0].private)
    other_run = agree(Peers(NAMES[0]), offered, Agree(run="r2", names=json.dumps(NAMES), publics=publics))[0]
    same_run = agree(Peers(NAMES[0]), offered, Agree(run="r1", names=json.dumps(NAMES), publics=publics))[0]
    assert same_run == first[0]
    assert not set(other_run.shared[1:]) & set(first[0].shared[1:])


def hkdf(secret: bytes, info: str) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes."""
    pseudorandom = hmac.digest(bytes(32), secret, hashlib.sha256)
    return hmac.digest(pseudorandom, info.encode() + b"\x01", hashlib.sha256)


def test_the_mask_is_x25519_then_hkdf_then_chacha20() -> None:
    a, b = agreed(("a", "b"), run="r1")
    secret = X25519PrivateKey.from_private_bytes(bytes.fromhex(a.private)).exchange(
        X25519PublicKey.from_public_bytes(bytes.fromhex(public_of(b)))
    )
    pair = "".join(sorted([public_of(a), public_of(b)]))
    roster = hashlib.sha256(json.dumps([["a", "b"], [public_of(a), public_of(b)]]).encode()).hexdigest()
    key = hkdf(secret, f"fedpact pair r1 {roster} {pair}")
    assert a.shared == ("", key.hex())
    stream = Cipher(algorithms.ChaCha20(hkdf(key, "a message"), bytes(16)), mode=None).encryptor()
    mask = np.frombuffer(stream.update(bytes(5 * 8 * WORDS)), dtype="<u8").reshape(5, WORDS)
    nothing = np.zeros(5)
    assert np.array_equal(protect(nothing, a, "a message"), mask)
    assert np.array_equal(protect(nothing, b, "a message"), secure_sum.negative(mask.astype(np.uint64)))


def test_masks_of_two_messages_have_nothing_in_common_and_those_of_one_are_the_same() -> None:
    keys, values = agreed()[1], np.linspace(-3.0, 3.0, 500)
    first, again, second = (protect(values, keys, message) for message in ("r1 5 x", "r1 5 x", "r1 6 x"))
    assert np.array_equal(first, again)
    assert not set(first.ravel().tolist()) & set(second.ravel().tolist())


def test_secrets_are_not_printed() -> None:
    keys = agreed()[0]
    assert not any(secret in repr(keys) for secret in (keys.private, *keys.shared[1:]))
    assert "north" in repr(keys)


PUBLICS = [public_of(k) for k in agreed(("x", "y", "z"))]


@pytest.mark.parametrize(
    ("names", "publics", "code"),
    [
        (NAMES, PUBLICS, "FP-OWNER-010"),
        (NAMES, ["own", "own", PUBLICS[0]], "FP-OWNER-010"),
        (("north",), ["own"], "FP-OWNER-010"),
        (NAMES, ["own", PUBLICS[0]], "FP-OWNER-010"),
        (NAMES[:2], ["own", "00" * 32], "FP-OWNER-001"),
        (NAMES[:2], ["own", "ab"], "FP-OWNER-001"),
        (NAMES[:2], ["own", "no number"], "FP-OWNER-001"),
    ],
    ids=["foreign set", "own key twice", "alone", "one is missing", "weak key", "short key", "no key"],
)
def test_a_set_of_keys_that_protects_nothing_is_refused(names: tuple[str, ...], publics: list[str], code: str) -> None:
    owner = Owner("hospital b", None)
    own = owner.handle(offer, Offer(run="r1", round=1)).kept.public
    sent = json.dumps([own if public == "own" else public for public in publics])
    with raises_code(code, "hospital b: "):
        owner.handle(agree, Agree(run="r1", round=2, names=json.dumps(names), publics=sent))


# -------------------------------------------------------------------------------------------------- fleets and problems


@dataclass(frozen=True, kw_only=True)
class Scale(Order):
    factor: float


@dataclass(frozen=True, kw_only=True)
class Part(Reply):
    vector: Summed[np.ndarray]
    loss: Summed[float]
    note: float


def scale(share: np.ndarray, state: int | None, order: Scale) -> tuple[int, Part]:
    count = (state or 0) + 1
    return count, Part(vector=order.factor * share, loss=float(share[0]), note=float(count))


@dataclass(frozen=True)
class Received:
    """A reply as it reached the server."""

    owner: str
    step: str
    round: int
    sealed: Sealed[Any]


@dataclass
class Line:
    """An engine whose line to the owners fails where it is told to, and which keeps all that the server receives.

    faults: by owner and round what happens, one after the other: "order" or "reply" is lost on its way, "restart"
            starts the owner's process anew, with its folder if there is one
    """

    faults: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    folder: Path | None = None
    networked: bool = False
    received: list[Received] = field(default_factory=list)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return Wired(self, shares)

    def masked(self, owner: str) -> list[np.ndarray]:
        return [r.sealed.sums for r in self.received if r.owner == owner and r.sealed.sums.dtype == np.uint64]


class Wired(Fleet):
    def __init__(self, line: Line, shares: Mapping[str, object]) -> None:
        super().__init__(tuple(shares))
        self.line, self.shares, self.networked = line, shares, line.networked
        self.processes = {name: Owner(name, share, line.folder) for name, share in shares.items()}

    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        future: Future[Sealed[Any]] = Future()
        faults = self.line.faults.get((owner, order.round), [])
        fault = faults.pop(0) if faults else ""
        try:
            if fault == "order":
                raise OwnerLost(f"{owner}: the line is dead")
            if fault == "restart":
                self.processes[owner] = Owner(owner, self.shares[owner], self.line.folder)
            sealed = self.processes[owner].handle(step, order)
            self.line.received.append(Received(owner, step.__name__, order.round, sealed))
            if fault == "reply":
                raise OwnerLost(f"{owner}: the line is dead")
            future.set_result(sealed)
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "PAUSE", 0.0)


def below(row: list[float], bound: float) -> fp.Constraint:
    return fp.Constraint(Affine([row], [-bound]), Nonnegative(1))


def small() -> fp.FederatedProblem:
    """A constraint of an owner, the coupled one and the server's bind, and the regularizer makes a zero."""
    curvature = np.diag([1.0, 2.0, 1.5, 1.0])
    centres = ([2.0, 1.0, 0.3, 0.4], [1.0, -1.0, 0.2, -0.1], [0.1, 2.0, -0.4, 0.2])
    own = ([1.0, 0.0, 0.1, 0.0], 0.15), ([0.0, 1.0, 0.5, 0.0], 0.5), ([0.3, 0.3, 1.0, 0.1], 0.5)
    coupled = ([1.0, 0.5, 0.0, 0.1], [0.0, 1.0, 0.1, 0.1], [0.5, 0.5, 0.5, 0.1])
    shares = [
        fp.Share(Quadratic(curvature, -curvature @ centre), below(*bound), coupled=Affine([row], [-0.35]), name=name)
        for name, centre, bound, row in zip(NAMES, centres, own, coupled, strict=True)
    ]
    return fp.FederatedProblem(shares, fp.Share(constraint=below([0.0, 0.0, 0.0, -1.0], -0.2)), fp.prox.L1(0.5))


def curved(n: int = 3, d: int = 12) -> fp.FederatedProblem:
    """Logistic losses, the constraint on class 1 at every owner: numbers without a pattern."""
    tables = data.neyman_pearson(n=n, d=d, rows=40, seed=1)
    return tasks.neyman_pearson(dict(zip([*NAMES, *"abcdefg"], tables.values(), strict=False)), bound=0.3)


PROBLEMS = {"small": small(), "curved": curved()}
#: Of proximal-al, by problem. Fixed: a rounding error in a sum may tip the decision to change them, and then all that
#: follows differs; so the answers of two runs agree to 1e-8 at any tolerance.
PENALTIES = {
    "small": {"tol": 1e-3, "penalty": 20.0, "consensus_penalty": 1.0},
    "curved": {"tol": 1e-3, "penalty": 100.0, "consensus_penalty": 0.1},
}
METHODS = ("interior-point", "accelerated", "proximal-al")


def solved(problem: str, method: str, secure: bool | None = True, **options: Any) -> fp.Solution:
    chosen: dict[str, Any] = PENALTIES[problem] if method == "proximal-al" else {"tol": 1e-8}
    answer = fp.solve(PROBLEMS[problem], method, secure_sum=secure, **chosen, **options)
    assert answer.status in ("solved", "client_lost", "interrupted")
    return answer


@functools.cache
def undisturbed(problem: str, method: str, secure: bool) -> fp.Solution:
    return solved(problem, method, secure)


def same_bits(a: fp.Solution, b: fp.Solution) -> bool:
    pairs = zip([a.w, *a.multipliers, a.coupled_multiplier], [b.w, *b.multipliers, b.coupled_multiplier], strict=True)
    return all(x.tobytes() == y.tobytes() for x, y in pairs) and a.certificate == b.certificate


# ------------------------------------------------------------------------------------------------------ the same answer


@pytest.mark.parametrize("method", slow_but(METHODS, "interior-point", "accelerated"))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_answer_is_that_of_plain_sums_after_two_more_exchanges(problem: str, method: str) -> None:
    plain, secure = undisturbed(problem, method, False), undisturbed(problem, method, True)
    assert secure.communication.rounds == plain.communication.rounds + 2
    assert secure.objective == pytest.approx(plain.objective, rel=1e-8, abs=0)
    assert np.max(np.abs(secure.w - plain.w)) <= 1e-8 * np.max(np.abs(plain.w))
    prices = [np.concatenate([*a.multipliers, a.coupled_multiplier]) for a in (plain, secure)]
    np.testing.assert_allclose(prices[1], prices[0], rtol=1e-6, atol=1e-8)
    checked = fp.certify(PROBLEMS[problem], secure.w, secure.multipliers, secure.coupled_multiplier)
    assert checked.worst == pytest.approx(secure.certificate.worst, rel=1e-6, abs=1e-12)
    if problem == "small":  # every part of it has a say
        assert min(p[0] for p in (secure.multipliers[0], secure.multipliers[1], secure.coupled_multiplier)) > 0.1
        assert secure.w[2] == 0


@pytest.mark.parametrize("method", METHODS)
def test_constraints_that_conflict_are_found_in_secure_sums_too(method: str) -> None:
    shares = [
        fp.Share(Quadratic(np.eye(2), [1.0, 1.0]), below([1.0, 0.2], -1.0), name="a"),
        fp.Share(Quadratic(np.eye(2), [1.0, -1.0]), below([-1.0, -0.2], -1.0), name="b"),
        fp.Share(Quadratic(np.eye(2), [0.0, 1.0]), below([0.0, 1.0], 50.0), name="c"),
    ]
    found = fp.solve(fp.FederatedProblem(shares), method, tol=1e-4, secure_sum=True)
    assert found.status == "infeasible"
    assert found.conflict == ("a", "b")


def test_threads_and_bytes_on_a_wire_give_the_same_bits() -> None:
    expected = undisturbed("curved", "interior-point", True)
    for engine in (InProcess(threads=2), Wire()):
        assert same_bits(solved("curved", "interior-point", engine=engine), expected)


def test_the_default_is_secure_between_organisations_only() -> None:
    for networked, method, secure in (
        (True, "interior-point", True),
        (True, "accelerated", True),
        (False, "interior-point", False),
    ):
        answer = solved("small", method, None, engine=Line(networked=networked))
        fields = answer.communication.owners["south"].fields
        assert any(name.endswith("(masked)") for name in fields) == secure
    off = solved("small", "interior-point", False, engine=Line(networked=True))
    assert not any(name.endswith("(masked)") for name in off.communication.owners["south"].fields)


# ------------------------------------------------------------------------------------------------------------- overflow


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_numbers_are_added_and_larger_ones_refused(n: int, sign: float) -> None:
    names = [f"owner {i}" for i in range(n)]
    largest = LIMIT / n
    with Session().open({name: np.array([0.0, sign * largest]) for name in names}) as session:
        session.secure()
        assert session.ask(scale, Scale(factor=1.0)).total.vector[1] == pytest.approx(sign * LIMIT, rel=1e-15)
        with raises_code(
            "FP-OWNER-011", "owner 0: ", "Part.vector", f"{1.25 * largest:.3g}", f"{n} owners", f"{largest:.3g}"
        ):
            session.ask(scale, Scale(factor=1.25))


def test_the_owner_with_the_large_number_is_named() -> None:
    shares = {"north": np.ones(2), "south": np.array([LIMIT / 2, 1.0]), "west": np.ones(2)}
    with Session().open(shares) as session:
        session.secure()
        with raises_code("FP-OWNER-011", "south: ", "Part.loss", f"{LIMIT / 2:.3g}", "3 owners"):
            session.ask(scale, Scale(factor=1e-9))


def in_units(unit: float) -> fp.FederatedProblem:
    """A quadratic program whose objective is stated in other units."""
    shares = [
        fp.Share(Quadratic(unit * np.eye(2), unit * np.array([-2.0, i])), below([1.0, 0.3 * i], 0.5), name=name)
        for i, name in enumerate(NAMES)
    ]
    return fp.FederatedProblem(shares)


@pytest.mark.parametrize("power", range(-6, 31, 4))
def test_interior_point_is_right_or_says_that_numbers_are_too_large(power: int) -> None:
    problem = in_units(10.0**power)
    plain = fp.solve(problem, "interior-point", tol=1e-8, max_rounds=60)
    refused: OwnerError | None = None
    try:
        secure = fp.solve(problem, "interior-point", tol=1e-8, max_rounds=60, secure_sum=True)
        said = secure.reason
    except OwnerError as error:
        refused = error
        said = str(error)
    if refused is not None:  # at the start already
        assert power > 20
        assert refused.code == "FP-OWNER-011"
    elif "secure sum" not in said:
        assert 10.0**power < LIMIT
        np.testing.assert_allclose(secure.w, plain.w, rtol=1e-8, atol=1e-8)
        return
    assert power > 5
    assert any(f"{name}: System.matrix" in said for name in NAMES)
    assert f"{LIMIT / 3:.3g}" in said


@pytest.mark.parametrize("n", [2, 6, 8, 19])
def test_the_largest_violations_of_all_owners_cancel_their_masks(n: int) -> None:
    """Each is cut to a root, which is rounded up for these n: the sum of squares is a little above the limit."""
    root = secure_sum.largest_root(n)
    assert n * Fraction(root) ** 2 > 2**80
    parts = [protect(np.full(5, root**2), k, "one") for k in agreed(tuple(map(str, range(n))))]
    np.testing.assert_allclose(secure_sum.reveal(parts), LIMIT, rtol=1e-14)


@pytest.mark.parametrize("method", ["auto", "accelerated", "proximal-al"])
def test_far_points_beyond_all_numbers_accuse_no_honest_owner(method: str) -> None:
    """Both owners' constraints are violated by more than a secure sum holds at the far point that is probed."""
    balls = [fp.Constraint(Quadratic(np.eye(1), [-c]) + (c**2 - 1) / 2, Nonnegative(1)) for c in (3.0, 9.0)]
    shares = [fp.Share(Quadratic(np.eye(1)), ball, name=name) for ball, name in zip(balls, NAMES, strict=False)]
    assert fp.solve(fp.FederatedProblem(shares), method, secure_sum=True, max_rounds=300).status == "infeasible"


@pytest.mark.parametrize("method", ["accelerated", "proximal-al", "newton-al"])
def test_an_iterate_that_diverges_ends_as_a_status(method: str) -> None:
    """An objective without a minimiser drives the iterates beyond what a secure sum holds."""
    shares = [fp.Share(Quadratic(np.zeros((2, 2)), [1e8 * i, 1e8]), name=name) for i, name in enumerate(NAMES)]
    found = fp.solve(fp.FederatedProblem(shares), method, secure_sum=True, max_rounds=300)
    assert found.status in ("unbounded", "stalled", "max_rounds")
    assert np.isfinite(found.certificate.stationarity)


def test_masks_that_do_not_cancel_are_an_error() -> None:
    values, keys = np.zeros(200), agreed()
    parts = [protect(values, k, message) for k, message in zip(keys, ("one", "one", "another"), strict=True)]
    with raises_code("FP-OWNER-301"):
        secure_sum.reveal(parts)


# ---------------------------------------------------------------------------------------------------- the server's view


class Bytes(RemoteFleet):
    """Owners behind bytes; what comes back is kept."""

    def __init__(self, shares: Mapping[str, object], transcript: list[tuple[str, bytes]]) -> None:
        super().__init__(tuple(shares))
        self.sites = {name: Site(name, share) for name, share in shares.items()}
        self.transcript = transcript

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        reply = self.sites[owner].handle(data)
        self.transcript.append((owner, reply))
        future.set_result(reply)
        return future


@dataclass
class Wire:
    transcript: list[tuple[str, bytes]] = field(default_factory=list)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return Bytes(shares, self.transcript)


def summed_values(path: Path) -> Iterator[np.ndarray]:
    """Every summed field of every reply in the record of a plain run."""
    for message in read_record(path):
        if "from" in message:
            shapes, sums = message["content"]["shapes"], message["content"]["sums"]
            ends = np.cumsum([int(np.prod(shape, dtype=int)) for shape in shapes], dtype=int)
            yield from np.split(sums, ends[:-1]) if shapes else []


@pytest.mark.parametrize("method", slow_but(METHODS, "interior-point", "accelerated"))
def test_no_summed_field_is_in_what_the_server_receives(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked for: the values of a plain run, and those that the owners masked in this very run."""
    solved("curved", method, False, record=tmp_path / "plain")
    true: list[np.ndarray] = list(summed_values(tmp_path / "plain"))

    def spying(reply: Reply, most: float | None = None) -> Sealed[Any]:
        true.extend(np.atleast_1d(getattr(reply, name)).ravel() for name in summed_fields(type(reply)))
        return seal(reply, most)

    monkeypatch.setattr(owner_module, "seal", spying)
    wire, record = Wire(), tmp_path / "secure"
    solved("curved", method, engine=wire, record=record)
    received = b"".join(reply for _, reply in wire.transcript)
    kept = [message for message in read_record(record) if "from" in message]
    assert len(kept) == len(wire.transcript)
    received += b"".join(message["content"]["sums"].tobytes() for message in kept)
    # Counts such as 1.0 and fields of zeros are no secrets, and may be anywhere.
    secrets = [values.astype(np.float64) for values in true if np.any(values != np.round(values))]
    assert len(secrets) > 200
    for values in secrets:
        assert values.tobytes() not in received
        assert encode(values).tobytes() not in received
        first = float(values[np.flatnonzero(values != np.round(values))[0]])
        assert repr(first).encode() not in received
        assert np.float64(first).tobytes() not in received
    assert any(values.tobytes() in (tmp_path / "plain").read_bytes() for values in secrets)


@pytest.fixture(scope="module")
def overheard() -> Line:
    """A secure run of interior-point, as the server received it."""
    line = Line()
    assert same_bits(solved("curved", "interior-point", engine=line), undisturbed("curved", "interior-point", True))
    return line


def chi_squares(words: np.ndarray) -> tuple[float, float]:
    """Of the 64 bits being one half of the time, and of the 256 bytes being equally frequent; each over its degree."""
    ones = np.array([np.count_nonzero(words >> np.uint64(k) & np.uint64(1)) for k in range(64)])
    bytes_seen = np.bincount(words.view(np.uint8), minlength=256)
    by_bit = np.sum((ones - words.size / 2) ** 2 / (words.size / 4)) / 64
    by_byte = np.sum((bytes_seen - words.size / 32) ** 2 / (words.size / 32)) / 255
    return float(by_bit), float(by_byte)


@pytest.mark.parametrize("owner", NAMES)
def test_masked_words_look_uniform(owner: str, overheard: Line) -> None:
    masked = np.concatenate([words.ravel() for words in overheard.masked(owner)])
    assert masked.size > 1000
    # Uniform bits exceed these limits less than once in 10^9 runs; the words without masks do by far.
    assert max(chi_squares(masked)) < 2.6
    bare = encode(np.random.default_rng(0).standard_normal(masked.size // 2)).ravel()
    assert min(chi_squares(bare)) > 10


def test_masked_words_are_new_in_every_message_and_at_every_owner(overheard: Line) -> None:
    messages = [set(words.ravel().tolist()) for owner in NAMES for words in overheard.masked(owner)]
    assert len(messages) > 3 * 5
    assert sum(map(len, messages)) == len(set.union(*messages))


def test_equal_values_are_masked_anew_in_every_round() -> None:
    line = Line()
    with Session(line).open({name: np.arange(4.0) for name in NAMES}) as session:
        session.secure()
        totals = [session.ask(scale, Scale(factor=0.5)).total for _ in range(3)]
    assert all(np.array_equal(total.vector, 1.5 * np.arange(4.0)) and total.loss == 0.0 for total in totals)
    first, second, third = line.masked("west")
    assert not (set(first.ravel().tolist()) & set(second.ravel().tolist()) & set(third.ravel().tolist()))
    assert [r.sealed.kept.note for r in line.received if r.owner == "west" and r.step == "scale"] == [1.0, 2.0, 3.0]
    assert all(r.sealed.kept.vector is None and r.sealed.kept.loss is None for r in line.received if r.step == "scale")


#: What the server reads owner by owner at the end of every method.
ENDING = {f"Concluded.{name}" for name in ("feasibility", "violation", "private", "multiplier", "wrong")}
#: ... and on the way: flags, and the slope of a constraint at the start; with one exchange for keys and one for their
#: agreement before.
READ = {
    "interior-point": {"System.usable"} | ENDING,
    "accelerated": {"Moved.converged", "Moved.indefinite"} | ENDING,
    "proximal-al": {"Introduced.slope", "Updated.converged", "Updated.indefinite"} | ENDING,
}
#: ... where the end is in doubt, and where it is proved that constraints conflict.
DOUBT = {"WeighedParts.concave", "Balanced.concave", "Named.size"}
KEYS = {"Offered.public", "Offered.signature", "Agreed.peers"}


@pytest.mark.parametrize("method", slow_but(METHODS, "interior-point", "accelerated"))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_read_owner_by_owner_is_in_the_ledger(problem: str, method: str) -> None:
    secure, plain = undisturbed(problem, method, True), undisturbed(problem, method, False)
    for owner in NAMES:
        fields = secure.communication.owners[owner].fields
        read = {name for name in fields if not name.endswith("(masked)")}
        assert read - DOUBT == READ[method] | KEYS
        masked = {name.removesuffix(" (masked)") for name in fields if name.endswith("(masked)")}
        assert masked | read == set(plain.communication.owners[owner].fields) | KEYS
        assert not masked & read


def test_no_step_of_these_methods_lets_more_be_read_of_one_owner() -> None:
    """By the classes of the replies, so it holds for every way a run may go; none has a vector but the price."""
    allowed = {name for names in READ.values() for name in names} | DOUBT
    described = (
        "dim",
        "objective",
        "cone",
        "coupled",
        "hessian",
        "convex",
        "private",
        "operator",
        "split",
        "stands_in",
    )
    allowed |= {f"Described.{name}" for name in described}
    files = ("interior_point", "accelerated_owner", "proximal_al", "inexact_admm")
    modules = [f"fedpact.solvers.constrained.{f}" for f in files]
    modules += [f"fedpact.solvers.{f}" for f in ("steps", "evidence", "scales")]
    steps = [step for name, step in STEPS.items() if name.partition(":")[0] in modules]
    kinds = {reply_type(step) for step in steps}
    assert len(kinds) > 8
    read = {kind.__name__: set(kind.__dataclass_fields__) - {*hidden_fields(kind, masked=True)} for kind in kinds}
    assert {f"{kind}.{field}" for kind, names in read.items() for field in names} == allowed


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_parts_of_all_but_one_are_still_masked(n: int) -> None:
    rng = np.random.default_rng(0)
    values, keys = rng.standard_normal((n, 300)), agreed(tuple(f"owner {i}" for i in range(n)))
    parts = [protect(v, k, "message") for v, k in zip(values, keys, strict=True)]
    for missing in range(n):
        there = [i for i in range(n) if i != missing]
        partial = functools.reduce(secure_sum.add, [parts[i] for i in there])
        plain = functools.reduce(secure_sum.add, [encode(values[i]) for i in there])
        assert not np.any(partial == plain)  # not a single word
        with raises_code("FP-OWNER-301"):
            secure_sum.reveal([parts[i] for i in there])


# -------------------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", ["order", "reply"])
def test_a_lost_message_is_asked_for_again_and_changes_nothing(method: str, fault: str, no_pause: None) -> None:
    line = Line({("south", 1): [fault], ("north", 2): [fault], ("south", 5): [fault, fault], ("west", 7): [fault]})
    answer = solved("curved", method, engine=line)
    assert not any(line.faults.values())  # all of it happened
    assert same_bits(answer, undisturbed("curved", method, True))
    twice = [r.sealed.sums for r in line.received if r.owner == "south" and r.round == 5]
    assert len(twice) == (3 if fault == "reply" else 1)
    assert all(np.array_equal(words, twice[0]) and words.dtype == np.uint64 for words in twice)


@pytest.mark.parametrize("method", METHODS)
def test_an_owner_lost_for_good_ends_the_run_and_the_server_learns_nothing_of_that_round(
    method: str, no_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: list[int] = []
    masked: dict[bytes, np.ndarray] = {}  # the words that were masked, by the result

    reveal = secure_sum.reveal

    def revealing(parts: list[np.ndarray], fit: Fit | None) -> np.ndarray:
        sums.append(len(parts))
        return reveal(parts, fit)

    def protecting(values: np.ndarray, keys: Keys, message: str, fit: Fit | None) -> np.ndarray:
        words = protect(values, keys, message, fit)
        bare = encode(values)
        if fit is not None:
            units = np.ones(values.size)
            units[fit.kinds == FITTING] = fit.units
            own = [values[fit.kinds == k] / units[fit.kinds == k] for k in range(4)]
            bare = np.concatenate([encode(*pair).ravel() for pair in zip(own, fit.widths, strict=True)])
        masked[words.tobytes()] = bare
        return words

    monkeypatch.setattr(secure_sum, "reveal", revealing)
    monkeypatch.setattr(secure_sum, "protect", protecting)
    line = Line({("south", 6): ["order"] * 10})
    answer = solved("curved", method, engine=line, retries=2)
    assert answer.status == "client_lost"
    assert answer.reason == "south: the line is dead"
    assert len(line.faults["south", 6]) == 7
    assert answer.communication.rounds == 6
    assert sums == [3] * 3  # rounds 3, 4, 5: never a sum over fewer, and none of round 6
    last = [r.sealed.sums for r in line.received if r.round == 6]
    assert len(last) == 2
    plain = functools.reduce(np.add, [masked[words.tobytes()] for words in last])  # word by word, without carries
    assert not np.any(functools.reduce(np.add, last) == plain)


def test_an_owner_that_is_late_for_the_keys_ends_the_run(no_pause: None) -> None:
    answer = solved("curved", "interior-point", engine=Line({("west", 2): ["order"] * 10}), retries=1)
    assert answer.status == "client_lost"
    assert answer.reason == "west: the line is dead"
    assert np.all(np.isnan(np.concatenate(answer.multipliers[1:])))


@pytest.mark.parametrize("method", METHODS)
def test_an_owner_restarted_with_its_folder_keeps_its_keys(method: str, tmp_path: Path) -> None:
    line = Line({("south", 4): ["restart"], ("south", 6): ["restart"], ("west", 2): ["restart"]}, tmp_path)
    answer = solved("curved", method, engine=line)
    assert not any(line.faults.values())
    assert same_bits(answer, undisturbed("curved", method, True))


def test_an_owner_restarted_without_its_folder_is_lost(no_pause: None) -> None:
    answer = solved("curved", "interior-point", engine=Line({("south", 5): ["restart"]}), retries=1)
    assert answer.status == "client_lost"
    assert answer.reason.startswith("south: has no memory of round 4, its last is 0; it was restarted without")


def test_a_restarted_owner_masks_the_same_order_with_the_same_words(tmp_path: Path) -> None:
    share = np.arange(6) / 8
    owners = [Owner(name, share, tmp_path) for name in NAMES]
    offers = [owner.handle(offer, Offer(run="r1", round=1)).kept.public for owner in owners]
    order = Agree(run="r1", round=2, after=1, names=json.dumps(NAMES), publics=json.dumps(offers))
    assert [owner.handle(agree, order).kept.peers for owner in owners] == [2, 2, 2]
    third = Scale(run="r1", round=3, after=2, durable=2, secure=True, factor=2.0)
    before = [owner.handle(scale, third).sums for owner in owners]
    again = Owner("south", share, tmp_path)
    assert np.array_equal(again.handle(scale, third).sums, before[1])  # from its memory
    fourth = Scale(run="r1", round=4, after=3, durable=3, secure=True, factor=3.0)
    parts = [o.handle(scale, fourth).sums for o in (owners[0], Owner("south", share, tmp_path), owners[2])]
    assert np.array_equal(secure_sum.reveal(parts)[:6], 9 * share)  # with the keys on disk
    stranger = Owner("south", share)
    with raises_code("FP-LOST-003", "south: "):
        stranger.handle(scale, Scale(run="r1", round=4, secure=True, factor=3.0))


@pytest.mark.parametrize("at", [4, 7])
def test_a_secure_run_is_resumed_to_the_same_bits_and_never_in_the_open(at: int, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rounds == at:
            raise KeyboardInterrupt

    first = solved("curved", "interior-point", checkpoint=tmp_path, callbacks=[interrupt])
    assert first.status == "interrupted"
    with raises_code("FP-CHECKPOINT-301", str(tmp_path), "round 1"):
        solved("curved", "interior-point", False, checkpoint=tmp_path, resume=True)
    resumed = solved("curved", "interior-point", checkpoint=tmp_path, resume=True)
    expected = undisturbed("curved", "interior-point", True)
    assert same_bits(resumed, expected)
    assert resumed.communication == expected.communication


# --------------------------------------------------------------------------------------------------------------- misuse


def test_one_owner_has_nobody_to_hide_behind() -> None:
    alone = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2), [1.0, 1.0]), name="a")])
    with raises_code("FP-OPTION-314"):
        fp.solve(alone, secure_sum=True)
    # between organisations the default is then a plain sum
    assert fp.solve(alone, "interior-point", engine=Line(networked=True)).solved


def test_old_replies_cannot_stand_in_under_masks() -> None:
    with raises_code("FP-OPTION-309"):
        fp.solve(small(), secure_sum=True, on_failure="stale")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with raises_code("FP-OPTION-001", "north: ", "pip install '.[secure]'"):
        fp.solve(small(), secure_sum=True)
    assert fp.solve(small(), secure_sum=False).solved


def test_constraints_that_exclude_each_other_are_proved_to_in_secret_too() -> None:
    """Their multipliers grow beyond what a secure sum holds; the steps there are refused, and the run goes on."""
    rng = np.random.default_rng(0)
    side = rng.standard_normal(4)
    side *= 4 / np.linalg.norm(side)
    shares = []
    for centre in (side, -side):
        objective = fp.functions.Quadratic(np.eye(4), rng.standard_normal(4))
        rows = rng.standard_normal((40, 4)) + 0.5 * centre
        loss = fp.functions.LogisticLoss(rows, np.ones(40)) - 0.1
        shares.append(fp.Share(objective, fp.Constraint(loss, Nonnegative(1))))
    shares.append(fp.Share(fp.functions.Quadratic(np.eye(4))))
    found = fp.solve(fp.FederatedProblem(shares), "interior-point", tol=1e-4, secure_sum=True)
    assert found.status == "infeasible"
    assert found.conflict == ("client 1", "client 2")
