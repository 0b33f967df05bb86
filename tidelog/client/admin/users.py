"""Administration of users: their passwords for SCRAM, which a broker stores salted and hashed.

Owns: the requests of `Admin.users`. Invariants: a password never leaves this process, because it is salted
and hashed here; each request changes one mechanism of one user, because Kafka refuses more. Source: KIP-554.
"""

import asyncio
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from tidelog.client.admin.requests import Requests
from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.scram import LEAST_ITERATIONS, SALT_BYTES, ScramMechanism, salted_password


class UserDescription(NamedTuple):
    """A user, and the iterations with which its password is stored, by the name of the SASL mechanism."""

    name: str
    iterations: dict[str, int]


class UserAdmin:
    """The users of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._ask = partial(requests.to_any, results=_results, name=_name)

    async def list(self) -> list[UserDescription]:
        """All users, sorted by name."""
        answer: types.DescribeUserScramCredentialsResponse = await self._ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}
        )
        return sorted(
            UserDescription(
                result.user,
                {
                    ScramMechanism(info.mechanism).sasl_name: info.iterations
                    for info in result.credential_infos
                },
            )
            for result in answer.results
        )

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Iterable[ScramMechanism] = tuple(ScramMechanism),
        iterations: int = LEAST_ITERATIONS,
    ) -> None:
        """Create a user, or change its password for these mechanisms."""
        for mechanism in mechanisms:
            salt = os.urandom(SALT_BYTES)
            salted = await asyncio.to_thread(salted_password, mechanism, password, salt, iterations)
            upsertion: DictOf[types.AlterUserScramCredentialsRequestUpsertion] = {
                "name": user,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted,
            }
            values: DictOf[types.AlterUserScramCredentialsRequest] = {
                "deletions": [],
                "upsertions": [upsertion],
            }
            await self._ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values)

    async def delete(self, user: str) -> None:
        """Delete a user. Connections that it has stay open until they authenticate again."""
        answer: types.DescribeUserScramCredentialsResponse = await self._ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": user}]}
        )
        for info in answer.results[0].credential_infos:
            deletion: DictOf[types.AlterUserScramCredentialsRequestDeletion] = {
                "name": user,
                "mechanism": info.mechanism,
            }
            values: DictOf[types.AlterUserScramCredentialsRequest] = {
                "deletions": [deletion],
                "upsertions": [],
            }
            await self._ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values)


def _results(answer: Any) -> list[Any]:
    return [*([answer] if "error_code" in answer else []), *answer.results]


def _name(result: Any) -> str:
    return f"user {result.user!r}" if "user" in result else "the users"
