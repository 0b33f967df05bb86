"""The users of the cluster: their credentials are changed, and passwords checked, here only.

Owns what a change of a user must satisfy, and the thread in which passwords are hashed: a check takes some
milliseconds, too long for the event loop, and one thread leaves the other cores to authenticated clients.

Invariants: no password is stored or logged. A user who does not exist has credentials like those of a user
(`unknown_users`), so a check takes as long, and shows the same.

On the event loop. Source: Kafka's ScramControlManager; KIP-554.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from tidelog.broker.cluster.catalog import NOBODY, Catalog, Change, UserChanged
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.security.broker_user import BROKER_USER, broker_credential
from tidelog.broker.security.sasl import KnownOrNot, is_encodable
from tidelog.broker.security.unknown_users import STRONGEST, UnknownUsers
from tidelog.protocol import scram
from tidelog.protocol.errors import ApiError, ErrorCode

logger = structlog.get_logger(__name__)
_MOST_BYTES: Final = 1024


class Users:
    """Changes the users of one cluster, and checks their passwords."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._thread: ThreadPoolExecutor | None = None
        salted, salt = os.urandom(STRONGEST.key_bytes), os.urandom(scram.SALT_BYTES)
        self._secret = scram.credential_of(STRONGEST, salted, salt, scram.LEAST_ITERATIONS)
        self._unknown: UnknownUsers | None = None
        self._brokers: dict[scram.ScramMechanism, scram.ScramCredential] = {}
        cluster.follow(self._take_over)

    async def make_secret(self) -> None:
        """Store a secret of the cluster if it has none yet. Raises StoreError, OSError."""

        def plan(catalog: Catalog) -> UserChanged:
            # Another broker may have stored one meanwhile: all have to use the same.
            return UserChanged(NOBODY, catalog.users.get(NOBODY, {STRONGEST: self._secret}))

        if NOBODY not in self._cluster.catalog.users:
            await self._cluster.change(plan)

    async def admit_brokers(self, mechanisms: Iterable[str]) -> None:
        """Get ready for the other brokers of the cluster, by these mechanisms. `make_secret` comes first."""
        secret = self._cluster.catalog.users[NOBODY][STRONGEST]
        for mechanism in scram.ScramMechanism:
            if mechanism.sasl_name in mechanisms:
                self._brokers[mechanism] = await asyncio.to_thread(broker_credential, secret, mechanism)

    def of_brokers(self, mechanism: scram.ScramMechanism) -> KnownOrNot | None:
        """The credential of the other brokers; None if they are not admitted."""
        held = self._brokers.get(mechanism)
        return None if held is None else KnownOrNot(held, is_known=True)

    def names(self) -> list[str]:
        return [name for name in self._cluster.catalog.users if name != NOBODY]

    def get(self, user: str) -> Mapping[scram.ScramMechanism, scram.ScramCredential] | None:
        """The credentials of a user, at least one; None if there is no such user."""
        return None if user == NOBODY else self._cluster.catalog.users.get(user)

    def known_or_not(self, user: str, mechanism: scram.ScramMechanism) -> KnownOrNot:
        """The user's credential for a mechanism; without one, a made-up one."""
        held = self.get(user)
        # Computed for known users too, so that the time says nothing.
        made_up = self._unknown_users.credential(user, mechanism, held)
        known = (held or {}).get(mechanism)
        return KnownOrNot(known or made_up, is_known=known is not None)

    @property
    def _unknown_users(self) -> UnknownUsers:
        if self._unknown is None:
            users = self._cluster.catalog.users
            secret = users[NOBODY][STRONGEST] if NOBODY in users else self._secret
            self._unknown = UnknownUsers((users[name] for name in self.names()), secret)
        return self._unknown

    def _take_over(self, change: Change) -> None:
        if isinstance(change.delta, UserChanged):
            self._unknown = None

    async def change(
        self, user: str, changes: Mapping[scram.ScramMechanism, scram.ScramCredential | None]
    ) -> None:
        """Replace these credentials of a user, or delete those that are None. Returns when it is durable.

        Raises ApiError: RESOURCE_NOT_FOUND for a deletion of what does not exist, KAFKA_STORAGE_ERROR.
        """

        def plan(catalog: Catalog) -> UserChanged:
            return planned(catalog, user, changes)

        await self._cluster.change_as_asked(plan)
        logger.info("user_changed", user=user, mechanisms=[each.sasl_name for each in changes])

    async def verify_password(self, user: str, password: str) -> bool:
        """Whether this is the user's password, by the credential of the strongest mechanism."""
        held = self.get(user)
        unknown = self._unknown_users.strongest(user)
        mechanism = max(held) if held else unknown
        credential = self.known_or_not(user, mechanism).credential
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="passwords")
        loop = asyncio.get_running_loop()
        fits = await loop.run_in_executor(self._thread, scram.is_password, mechanism, credential, password)
        return fits and held is not None

    def close(self) -> None:
        """Checks that have not begun are cancelled."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def planned(
    catalog: Catalog, user: str, changes: Mapping[scram.ScramMechanism, scram.ScramCredential | None]
) -> UserChanged:
    """The delta of a change. Raises ApiError(RESOURCE_NOT_FOUND) for a deletion of what does not exist."""
    credentials = dict(catalog.users.get(user, {}))
    for mechanism, credential in changes.items():
        if credential is not None:
            credentials[mechanism] = credential
        elif credentials.pop(mechanism, None) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
    return UserChanged(user, credentials)


def mechanism_of(number: int) -> scram.ScramMechanism:
    """The mechanism of this number. Raises ApiError(UNSUPPORTED_SASL_MECHANISM)."""
    try:
        return scram.ScramMechanism(number)
    except ValueError:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None


def check_name(user: str) -> None:
    """Raise ApiError(UNACCEPTABLE_CREDENTIAL) for a name that no user may have."""
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if user == BROKER_USER:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{user} is reserved for brokers")
    if not is_encodable(user):
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must be Unicode, got {user!a}")


def new_credentials(
    password: str,
    mechanisms: Iterable[scram.ScramMechanism] = tuple(scram.ScramMechanism),
    iterations: int = scram.LEAST_ITERATIONS,
) -> dict[scram.ScramMechanism, scram.ScramCredential]:
    """What is stored of a password. Takes some milliseconds: never call it on an event loop."""
    made = {}
    for mechanism in mechanisms:
        salt = os.urandom(scram.SALT_BYTES)
        salted = scram.salted_password(mechanism, password, salt, iterations)
        made[mechanism] = scram.credential_of(mechanism, salted, salt, iterations)
    return made


def checked_credential(
    mechanism: scram.ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> scram.ScramCredential:
    """What is stored of a salted password. Raises ApiError(UNACCEPTABLE_CREDENTIAL)."""
    if iterations < scram.LEAST_ITERATIONS:
        problem = f"Too few iterations: expected at least {scram.LEAST_ITERATIONS}"
    elif iterations > scram.MOST_ITERATIONS:
        problem = f"Too many iterations: expected at most {scram.MOST_ITERATIONS}"
    elif not 0 < len(salt) <= _MOST_BYTES:
        problem = f"The salt must have 1 to {_MOST_BYTES} bytes"
    elif not 0 < len(salted_password) <= _MOST_BYTES:
        problem = f"The salted password must have 1 to {_MOST_BYTES} bytes"
    else:
        return scram.credential_of(mechanism, salted_password, salt, iterations)
    raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
