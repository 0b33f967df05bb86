"""What clients are shown of users that do not exist: salts and iterations like those of the users that do.

Owns the choice of them. An unknown user has the shape of one of the users: the same mechanisms, and for each
the same iterations and a salt of the same kind. So it is as likely to have a shape as a user is, and a client
cannot find out by salts and iterations whether a name is known.

Invariants: pure. The same name always gets the same salt. Its shape depends on the name, on the secret of the
cluster and on the shapes of the users. When users change, few names get another shape (weighted rendezvous
hashing).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import shake_256
from typing import Final, NamedTuple

from tidelog.protocol.scram import (
    LEAST_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    keyed_hash,
)

STRONGEST: Final = max(ScramMechanism)
_MOST_SHAPES: Final = 64
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class _Look(NamedTuple):
    """What a client sees of a credential. `is_text`: Java's AdminClient makes salts of digits and letters."""

    iterations: int = LEAST_ITERATIONS
    salt_bytes: int = SALT_BYTES
    is_text: bool = False


_Shape = tuple[tuple[ScramMechanism, _Look], ...]
Credentials = Mapping[ScramMechanism, ScramCredential]


def _shape_of(credentials: Credentials) -> _Shape:
    return tuple(
        (mechanism, _Look(held.iterations, len(held.salt), all(each in _BASE_36 for each in held.salt)))
        for mechanism, held in sorted(credentials.items())
    )


class UnknownUsers:
    """The made-up credentials of all names, beside these users."""

    def __init__(self, users: Iterable[Credentials], secret: ScramCredential) -> None:
        """`secret`: a credential whose keys are known to nobody else, and always the same."""
        self._secret = secret
        # The shapes of a few users more would change nothing, and cost time at each authentication.
        self._shapes = Counter(map(_shape_of, users)).most_common(_MOST_SHAPES)

    def credential(self, user: str, mechanism: ScramMechanism, held: Credentials | None) -> ScramCredential:
        """One that no password fits. `held` are the credentials of a user who has others."""
        shape = dict(_shape_of(held) if held else self._choice(user, self._shapes))
        having = [each for each in self._shapes if mechanism in dict(each[0])]
        # Also where it is not needed, so that the time says nothing.
        other = dict(self._choice(user, having))
        look = shape.get(mechanism) or other.get(mechanism) or _Look()
        text = f"{mechanism.sasl_name} {user}".encode()
        salt = shake_256(keyed_hash(STRONGEST, self._secret.stored_key, text)).digest(look.salt_bytes)
        if look.is_text:
            salt = bytes(_BASE_36[each % len(_BASE_36)] for each in salt)
        salted = keyed_hash(STRONGEST, self._secret.server_key, text)[: mechanism.key_bytes]
        return credential_of(mechanism, salted, salt, look.iterations)

    def strongest(self, user: str) -> ScramMechanism:
        """The strongest mechanism of an unknown user."""
        return max((mechanism for mechanism, _ in self._choice(user, self._shapes)), default=STRONGEST)

    def _choice(self, user: str, shapes: Sequence[tuple[_Shape, int]]) -> _Shape:
        def score(counted: tuple[_Shape, int]) -> float:
            shape, count = counted
            drawn = keyed_hash(STRONGEST, self._secret.stored_key, f"{shape} {user}".encode())
            return -count / math.log((int.from_bytes(drawn[:6]) + 1) / (2**48 + 1))

        return max(shapes, key=score, default=((), 0))[0]
