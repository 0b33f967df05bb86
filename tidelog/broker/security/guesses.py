"""How often an address may be wrong about passwords.

Owns the counts of failed sign-ins, of all ways to sign in with a password. The rule: an address may fail
`OF_USER` times in a row as one user, and again once every `SECONDS_OF_USER`; as all users together
`OF_ADDRESS` times, and again every `SECONDS_OF_ADDRESS`. Until then its attempts are refused, also with the
right password. Only failures count. Other addresses are not affected, and a user who signed in from an
address before is not slowed down by its failures as others: behind one address may be many clients.

Invariants: at most `MOST` addresses, pairs, and pairs that signed in are kept, the ones of last use; a user's
name takes the same space however long it is. In IPv6 the first half is one address: a customer has all of it.

Pure: times are in seconds of any clock that does not go back. Source: OWASP's Authentication Cheat Sheet.
"""

from hashlib import blake2b
from ipaddress import IPv6Address
from typing import Final

from tidelog.broker.configuration.address_overrides import canonical_host, is_address

OF_USER: Final = 20
SECONDS_OF_USER: Final = 5.0
OF_ADDRESS: Final = 100
SECONDS_OF_ADDRESS: Final = 1.0
MOST: Final = 10_000
_KEY_BYTES: Final = 16


class Guesses:
    """Counts wrong passwords at one broker, and tells how long an address has to wait."""

    def __init__(self) -> None:
        self._of_users: dict[bytes, float] = {}
        """Pair of address and user -> when its failures are forgotten."""
        self._of_addresses: dict[bytes, float] = {}
        self._known: dict[bytes, None] = {}
        """The pairs that signed in."""

    def wait_seconds(self, host: str, user: str, now: float) -> float:
        """How long this address may not sign in as this user; 0 if it may."""
        address, pair = _keys(host, user)
        left = [_wait(self._of_users, pair, now, OF_USER, SECONDS_OF_USER)]
        if pair not in self._known:
            left.append(_wait(self._of_addresses, address, now, OF_ADDRESS, SECONDS_OF_ADDRESS))
        return max(left)

    def failed(self, host: str, user: str, now: float) -> None:
        """Count a wrong password."""
        address, pair = _keys(host, user)
        for counts, key, seconds in (
            (self._of_users, pair, SECONDS_OF_USER),
            (self._of_addresses, address, SECONDS_OF_ADDRESS),
        ):
            counts[key] = max(counts.pop(key, now), now) + seconds
            if len(counts) > MOST:
                del counts[next(iter(counts))]

    def succeeded(self, host: str, user: str) -> None:
        """Note a right password."""
        _, pair = _keys(host, user)
        self._known.pop(pair, None)
        self._known[pair] = None
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]


def _wait(counts: dict[bytes, float], key: bytes, now: float, most: int, seconds: float) -> float:
    return max(counts.get(key, now) - now - (most - 1) * seconds, 0.0)


def _keys(host: str, user: str) -> tuple[bytes, bytes]:
    """Of the address, and of the address with the user."""
    address = canonical_host(host).encode()
    if is_address(host) and ":" in (text := address.decode()):
        address = IPv6Address(text).packed[:8]
    return address[:64], blake2b(
        address + b"\0" + user.encode(errors="surrogatepass"), digest_size=_KEY_BYTES
    ).digest()
