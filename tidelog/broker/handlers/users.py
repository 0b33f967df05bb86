"""DescribeUserScramCredentials and AlterUserScramCredentials.

Invariants: each user that a request names is answered once; all changes of one user in a request take effect
together or not at all; no key or salt leaves the broker.

Source: Kafka's ScramControlManager and ScramImage; KIP-554.
"""

from __future__ import annotations

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.users import check_name, checked_credential, mechanism_of
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.scram import ScramCredential, ScramMechanism
from tidelog.protocol.steps import Pace, Steps, each

_Changes = dict[ScramMechanism, ScramCredential | None]


class UsersHandler:
    """Serves DescribeUserScramCredentials 0 and AlterUserScramCredentials 0."""

    def __init__(self, services: Services) -> None:
        self._users = services.users
        self._turns = services.turns

    def describe(
        self, context: RequestContext, request: types.DescribeUserScramCredentialsRequest
    ) -> Steps[DictOf[types.DescribeUserScramCredentialsResponse]]:
        """Mechanisms and iterations of the named users; of all users where none is named."""
        pace = Pace()
        times: dict[str, int] = {}
        for wanted in request.users or ():
            times[wanted.name] = times.get(wanted.name, 0) + 1
            if pace.spent():
                yield
        times = times or dict.fromkeys(self._users.names(), 1)
        results = yield from each(self._described, times.items(), pace)
        return {"error_code": ErrorCode.NONE, "results": results}

    def _described(self, wanted: tuple[str, int]) -> DictOf[types.DescribeUserScramCredentialsResponseResult]:
        user, times = wanted
        if times > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            return {"user": user, "error_code": ErrorCode.DUPLICATE_RESOURCE, "error_message": message}
        held = self._users.get(user)
        if held is None:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            return {"user": user, "error_code": ErrorCode.RESOURCE_NOT_FOUND, "error_message": message}
        return {
            "user": user,
            "error_code": ErrorCode.NONE,
            "credential_infos": [
                {"mechanism": mechanism, "iterations": held[mechanism].iterations} for mechanism in held
            ],
        }

    async def alter(
        self, context: RequestContext, request: types.AlterUserScramCredentialsRequest
    ) -> DictOf[types.AlterUserScramCredentialsResponse]:
        pace = Pace()
        changes: dict[str, _Changes | ApiError] = {}
        for deletion in request.deletions:
            _add(changes, deletion, None)
            if pace.spent():
                await self._turns.next()
        for upsertion in request.upsertions:
            _add(changes, upsertion, upsertion)
            if pace.spent():
                await self._turns.next()

        async def change(
            asked: tuple[str, _Changes | ApiError],
        ) -> DictOf[types.AlterUserScramCredentialsResponseResult]:
            user, wanted = asked
            try:
                if isinstance(wanted, ApiError):
                    raise again(wanted)
                await self._users.change(user, wanted)
            except ApiError as error:
                return {"user": user, "error_code": error.code, "error_message": error.message}
            return {"user": user, "error_code": ErrorCode.NONE}

        return {"results": await self._turns.together(change, changes.items(), pace)}


def _add(
    changes: dict[str, _Changes | ApiError],
    wanted: types.AlterUserScramCredentialsRequestDeletion | types.AlterUserScramCredentialsRequestUpsertion,
    upsertion: types.AlterUserScramCredentialsRequestUpsertion | None,
) -> None:
    """Add one alteration to those of its user, or the error that refuses them all."""
    of_user = changes.setdefault(wanted.name, {})
    if isinstance(of_user, ApiError):
        return
    try:
        check_name(wanted.name)
        mechanism = mechanism_of(wanted.mechanism)
        if mechanism in of_user:
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        of_user[mechanism] = (
            None
            if upsertion is None
            else checked_credential(
                mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
            )
        )
    except ApiError as error:
        changes[wanted.name] = again(error)
