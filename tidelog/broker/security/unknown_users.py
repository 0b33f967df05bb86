"""What clients are shown of users that do not exist: salts and iterations like those of the users that do.

An unknown user has the shape of one of the users: the same mechanisms, and for each the same iterations and a
salt of the same kind. So it is as likely to have a shape as a user is, and a client cannot find out by salts
and iterations whether a name is known.

Invariants: pure. The same name always gets the same salt. Its shape depends on the name, on the secret of the
cluster and on the shapes of the users.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import shake_256
from hmac import digest
from typing import Final, NamedTuple

from tidelog.protocol import scram

STRONGEST: Final = max(scram.ScramMechanism)
_MOST_SHAPES: Final = 16
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class _Look(NamedTuple):
    """What a client sees of a credential. `is_text`: Java's AdminClient makes salts of digits and letters."""

    iterations: int = scram.LEAST_ITERATIONS
    salt_bytes: int = scram.SALT_BYTES
    is_text: bool = False


_Shape = tuple[tuple[scram.ScramMechanism, _Look], ...]
Credentials = Mapping[scram.ScramMechanism, scram.ScramCredential]


class _Counted(NamedTuple):
    """A shape, how many users have it, and its text."""

    looks: Mapping[scram.ScramMechanism, _Look]
    users: int
    text: bytes


_NO_SHAPE: Final = _Counted({}, 0, b"")


def _shape_of(credentials: Credentials) -> _Shape:
    return tuple(
        (mechanism, _Look(held.iterations, len(held.salt), all(each in _BASE_36 for each in held.salt)))
        for mechanism, held in sorted(credentials.items())
    )


class UnknownUsers:
    """The made-up credentials of all names, beside these users."""

    def __init__(self, users: Iterable[Credentials], secret: scram.ScramCredential) -> None:
        """`secret`: a credential whose keys only this cluster knows, and always the same."""
        self._secret = secret
        self._nobody = {STRONGEST: secret}
        # The shapes of a few users more would change little, and cost time at each authentication.
        counts = Counter(map(_shape_of, users)).most_common(_MOST_SHAPES)
        self._shapes = [_Counted(dict(shape), count, repr(shape).encode()) for shape, count in counts]
        self._having = {
            mechanism: [each for each in self._shapes if mechanism in each.looks]
            for mechanism in scram.ScramMechanism
        }

    def credential(
        self, user: str, mechanism: scram.ScramMechanism, held: Credentials | None
    ) -> scram.ScramCredential:
        """One that no password fits. `held` are the credentials of a user who has others."""
        # All of it is computed for every name, so that the time says nothing.
        own = dict(_shape_of(held or self._nobody))
        chosen = self._choice(user, self._shapes).looks
        other = self._choice(user, self._having[mechanism]).looks
        look = (own if held else chosen).get(mechanism) or other.get(mechanism) or _Look()
        text = f"{mechanism.sasl_name} {user}".encode()
        salt = shake_256(scram.keyed_hash(STRONGEST, self._secret.stored_key, text)).digest(look.salt_bytes)
        if look.is_text:
            salt = bytes(_BASE_36[each % len(_BASE_36)] for each in salt)
        salted = scram.keyed_hash(STRONGEST, self._secret.server_key, text)[: mechanism.key_bytes]
        return scram.credential_of(mechanism, salted, salt, look.iterations)

    def strongest(self, user: str) -> scram.ScramMechanism:
        """The strongest mechanism of an unknown user."""
        return max(self._choice(user, self._shapes).looks, default=STRONGEST)

    def _choice(self, user: str, shapes: Sequence[_Counted]) -> _Counted:
        key, name = self._secret.stored_key, user.encode()

        def score(shape: _Counted) -> float:
            drawn = digest(key, shape.text + name, "sha256")
            return -shape.users / math.log((int.from_bytes(drawn[:6]) + 1) / (2**48 + 1))

        return max(shapes, key=score, default=_NO_SHAPE)
