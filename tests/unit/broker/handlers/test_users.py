"""Users are made, changed and deleted by Kafka's rules, and nothing secret comes back."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.cluster.catalog import Delta
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.scram import ScramMechanism, salted_password

ALTER, DESCRIBE = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
SHA_256, SHA_512 = ScramMechanism


def upsertion(
    name: str, password: str = "secret", mechanism: int = SHA_256, **changed: object
) -> dict[str, object]:
    known = ScramMechanism(mechanism) if mechanism in list(ScramMechanism) else SHA_256
    salted = salted_password(known, password, b"salt", 4096)
    values = {"mechanism": mechanism, "iterations": 4096, "salt": b"salt", "salted_password": salted}
    return {"name": name, **values, **changed}


async def altered(
    asker: Asker, *upsertions: dict[str, object], delete: tuple[tuple[str, int], ...] = ()
) -> dict[str, int]:
    deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in delete]
    answer = await asker.ask(ALTER, 0, deletions=deletions, upsertions=list(upsertions))
    return {result.user: result.error_code for result in answer.results}


async def test_a_password_is_checked_against_the_strongest_mechanism_and_an_unknown_user_has_none(
    asker: Asker,
) -> None:
    users = asker.services.users
    await altered(asker, upsertion("alice", "weak"), upsertion("alice", "strong", SHA_512))
    assert await users.verify_password("alice", "strong")
    assert not await users.verify_password("alice", "weak")
    for password in ("", "secret", "strong"):
        assert not await users.verify_password("nobody", password)


async def test_no_key_of_a_user_is_in_a_repr(asker: Asker) -> None:
    await altered(asker, upsertion("alice"))
    held = asker.services.catalog.users["alice"][SHA_256]
    shown = repr(asker.services.catalog.users)
    for secret in (held.salt, held.stored_key, held.server_key):
        assert repr(secret) not in shown


async def test_many_users_of_one_request_are_stored_together(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = asker.services.cluster._store
    commit, stored_at_once = store._commit, []

    def counted(deltas: Sequence[Delta], expected_revision: int) -> None:
        stored_at_once.append(len(deltas))
        commit(deltas, expected_revision)

    monkeypatch.setattr(store, "_commit", counted)
    one = upsertion("")
    made = await altered(asker, *({**one, "name": f"u{number}"} for number in range(50)), upsertion(""))
    assert made.pop("") == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert set(made.values()) == {ErrorCode.NONE}
    assert stored_at_once == [50]
