"""The sessions of the console: who signed in, until when, and by which cookie.

Owns the open sessions. Invariants: only a digest of a cookie's secret is kept; there are at most `MOST`
sessions, `MOST_OF_USER` of one user, beyond that the oldest one ends; a session ends `IDLE_SECONDS` after its
last request, `LONGEST_SECONDS` after its first one at the latest, and with the first request after a change
of its user's credentials, which a deletion of the user is.

Event loop only. Source: OWASP's page on session management.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from tidelog.broker.security.users import Users
from tidelog.protocol.scram import ScramCredential, ScramMechanism

MOST: Final = 1_000
MOST_OF_USER: Final = 20
IDLE_SECONDS: Final = 3_600.0
LONGEST_SECONDS: Final = 12 * 3_600.0
_SECRET_BYTES: Final = 32


@dataclass(slots=True)
class Identity:
    """A user who showed a password, a token or a certificate, until `ends_seconds` of the loop's time."""

    user: str
    credentials: Mapping[ScramMechanism, ScramCredential] | None
    """Those of the user at that time; None for a user without a password."""
    ends_seconds: float = float("inf")


class Sessions:
    """Begins, finds and ends the console's sessions at one broker. `now_seconds` is the loop's time."""

    def __init__(self, users: Users, now_seconds: Callable[[], float]) -> None:
        self._users = users
        self._now_seconds = now_seconds
        self._open: dict[bytes, tuple[Identity, float]] = {}
        """Digest of the secret -> who, and when the session ends if nothing is asked."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, identity: Identity) -> str:
        """Open a session; the secret of its cookie."""
        now = self._now_seconds()
        for key in [key for key, (held, idle) in self._open.items() if idle <= now or not self.holds(held)]:
            del self._open[key]
        of_user = [key for key, (held, _) in self._open.items() if held.user == identity.user]
        if len(of_user) >= MOST_OF_USER:
            del self._open[of_user[0]]
        elif len(self._open) >= MOST:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        identity.ends_seconds = min(identity.ends_seconds, now + LONGEST_SECONDS)
        self._open[_key(secret)] = (identity, now + IDLE_SECONDS)
        return secret

    def find(self, secret: str, *, is_used: bool = True) -> Identity | None:
        """Whose session this is; None if it has ended. `is_used`: it may last longer because of this."""
        key, now = _key(secret), self._now_seconds()
        identity, idle_ends = self._open.get(key, (None, 0.0))
        if identity is None:
            return None
        if idle_ends <= now or not self.holds(identity):
            del self._open[key]
            return None
        if is_used:
            self._open[key] = (identity, now + IDLE_SECONDS)
        return identity

    def end(self, secret: str) -> Identity | None:
        """Whose session it was; None if it had ended."""
        return self._open.pop(_key(secret), (None, 0.0))[0]

    def holds(self, identity: Identity) -> bool:
        """Whether what the user showed still counts."""
        in_time = self._now_seconds() < identity.ends_seconds
        return in_time and self._users.get(identity.user) == identity.credentials


def _key(secret: str) -> bytes:
    return sha256(secret.encode(errors="replace")).digest()
