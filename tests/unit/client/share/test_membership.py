"""How a member of a share group differs from one of a consumer group."""

from types import SimpleNamespace
from uuid import UUID

from tests.unit.client.groups.test_consumer_membership import ID, P0, P1, answer, beat
from tidelog.client.groups.steps import Adopt, FindCoordinator, Leave, Rest, Revoke
from tidelog.client.share.membership import ShareMembership
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_request, encode_request


def member() -> ShareMembership:
    it = ShareMembership("g", UUID(int=1), rack_id="r")
    it.subscribe(frozenset({"t"}))
    assert it.next_step() == FindCoordinator()
    it.coordinator_found(1)
    return it


def test_its_id_is_a_uuid_of_kafka_s() -> None:
    assert member().identity.member_id == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_heartbeat_names_no_partitions() -> None:
    it = member()
    values = beat(it, answer(1, 0))
    request = decode_request(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, encode_request(ApiKey.SHARE_GROUP_HEARTBEAT, 1, values)
    )
    assert (request.member_epoch, request.rack_id, request.subscribed_topic_names) == (0, "r", ["t"])
    assert it.heartbeat()[0] is ApiKey.SHARE_GROUP_HEARTBEAT


def test_it_reads_what_the_broker_assigns_and_nothing_else() -> None:
    it = member()
    beat(it, answer(1, 0, 1))
    it.resolved({"t": ID})
    assert it.next_step() == Adopt(frozenset({P0, P1}))
    it.adopted(frozenset({P0, P1}))
    beat(it, answer(2, 1))
    assert it.next_step() == Revoke(frozenset({P0}), False)
    it.revoked(frozenset({P0}))
    assert it.next_step() == Rest()
    assert it.owned == {P1}


def test_a_member_that_the_broker_forgot_joins_again_with_its_id() -> None:
    it = member()
    beat(it, answer(4, 0))
    before = it.identity.member_id
    beat(it, SimpleNamespace(error_code=ErrorCode.UNKNOWN_MEMBER_ID, error_message=None))
    values = beat(it, answer(1, 0))
    assert (values["member_id"], values["member_epoch"]) == (before, 0)


def test_it_leaves_for_good() -> None:
    it = member()
    beat(it, answer(4))
    it.subscribe(None)
    step = it.next_step()
    assert isinstance(step, Leave)
    assert (step.api_key, step.values["member_epoch"]) == (ApiKey.SHARE_GROUP_HEARTBEAT, -1)
