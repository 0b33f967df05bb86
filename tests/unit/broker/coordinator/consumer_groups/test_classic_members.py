"""Members of the classic protocol within a consumer group: they are served as if it were a classic one."""

import pytest

from tests.unit.broker.coordinator.consumer_groups.site import (
    CLASSIC_SESSION_MS,
    INTERVAL_MS,
    REBALANCE_MS,
    SETTINGS,
    ClassicClient,
    Client,
    Site,
    partitions_in,
    subscribed,
)
from tidelog.protocol.errors import ErrorCode

IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


def mixed(topics: int = 4) -> tuple[Site, Client, str]:
    """A group with a member of either protocol; the classic one has joined and not synchronised yet."""
    site = Site({"t": topics})
    client = site.join("consumer")
    joined = site.join_classic().answer
    assert joined.error_code == ErrorCode.NONE
    return site, client, joined.member_id


def test_a_classic_member_joins_at_once_and_gets_what_others_have_released() -> None:
    site, client, member_id = mixed()
    assert partitions_in(site.sync_classic(member_id, 2).answer.assignment) == {}
    client.beat()
    client.beat()
    assert site.heartbeat_classic(member_id, 2) == IN_PROGRESS
    again = site.join_classic(member_id).answer
    assert (again.generation, again.protocol_type, again.protocol, again.leader) == (
        2,
        "consumer",
        "range",
        "",
    )
    share = partitions_in(site.sync_classic(member_id, 2).answer.assignment)
    assert set(share["t"]) | client.partitions() == {0, 1, 2, 3}
    assert site.heartbeat_classic(member_id, 2) == ErrorCode.NONE
    assert site.group().state.value == "Stable"


def test_a_classic_member_may_join_again_by_the_consumer_protocol() -> None:
    site, client, member_id = mixed()
    again = site.join(member_id)
    for _ in range(2 * REBALANCE_MS // INTERVAL_MS):
        client.beat()
        again.beat()
        site.pass_ms(INTERVAL_MS)
    assert len(client.partitions()) == len(again.partitions()) == 2


def test_no_partition_has_two_owners_while_members_of_both_protocols_rebalance() -> None:
    site, first, member_id = mixed(topics=6)
    classic = ClassicClient(site, member_id, 2)
    clients: list[Client | ClassicClient] = [first, classic]
    for name in ("second", "third"):
        clients.append(site.join(name))
        for _ in range(6):
            for each in clients:
                each.beat()
                held = [part for client in clients for part in client.partitions()]
                assert len(held) == len(set(held))
    assert sorted(len(each.partitions()) for each in clients) == [1, 1, 2, 2]
    assert site.group().state.value == "Stable"


def test_a_member_without_an_id_first_gets_one_and_nothing_is_kept_of_it(site: Site) -> None:
    site.join("consumer")
    answer = site.join_classic(requires_id=True).answer
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert set(site.group().members) == {"consumer"}
    assert site.join_classic(answer.member_id, requires_id=True).answer.error_code == ErrorCode.NONE
    assert set(site.group().members) == {"consumer", answer.member_id}


def test_a_request_of_another_generation_or_another_member_is_refused() -> None:
    site, client, member_id = mixed()
    assert site.heartbeat_classic(member_id, 1) == ErrorCode.ILLEGAL_GENERATION
    assert site.sync_classic(member_id, 3).answer.error_code == ErrorCode.ILLEGAL_GENERATION
    for stranger in ("nobody", client.member_id):
        assert site.heartbeat_classic(stranger, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert site.sync_classic(stranger, 1).answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("asked", [{"protocol": "sticky"}, {"protocol_type": "connect"}])
def test_a_sync_by_another_protocol_is_refused(asked: dict[str, str]) -> None:
    site, _, member_id = mixed()
    refused = site.sync_classic(member_id, 2, **asked).answer  # type: ignore[arg-type]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "asked",
    [
        {"protocols": ("sticky",)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"metadata": b"\0\1"},
    ],
)
def test_a_member_that_has_no_protocol_in_common_or_cannot_be_read_is_refused(
    asked: dict[str, object],
) -> None:
    site, _, _ = mixed()
    refused = site.join_classic(**asked).answer  # type: ignore[arg-type]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(site.group().members) == 2


def test_a_full_group_and_a_wrong_session_timeout_refuse_classic_members_too() -> None:
    site = Site(settings=SETTINGS._replace(max_size=1))
    site.join("consumer")
    assert site.join_classic().answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    site.groups.classic.limits = site.groups.classic.limits._replace(min_session_timeout_ms=20_000)
    assert site.join_classic().answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_classic_member_expires_after_its_own_session_timeout() -> None:
    site, client, member_id = mixed()
    site.pass_ms(CLASSIC_SESSION_MS - 1)
    client.beat()
    site.heartbeat_classic(member_id, 2)
    site.pass_ms(CLASSIC_SESSION_MS - 1)
    client.beat()
    assert member_id in site.group().members
    site.pass_ms(1)
    assert set(site.group().members) == {"consumer"}


def test_a_classic_member_that_is_asked_to_join_and_does_not_expires() -> None:
    site, client, member_id = mixed()
    site.sync_classic(member_id, 2)
    site.join("other")
    for _ in range(2 * REBALANCE_MS // CLASSIC_SESSION_MS):
        site.pass_ms(CLASSIC_SESSION_MS // 2)
        client.beat()
        assert site.heartbeat_classic(member_id, 2) == IN_PROGRESS
    site.pass_ms(CLASSIC_SESSION_MS // 2)
    assert site.heartbeat_classic(member_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_and_does_not_ask_for_its_assignment_expires() -> None:
    site, client, member_id = mixed()
    for _ in range(2 * REBALANCE_MS // CLASSIC_SESSION_MS):
        client.beat()
        site.heartbeat_classic(member_id, 2)
        site.pass_ms(CLASSIC_SESSION_MS // 2)
    assert set(site.group().members) == {"consumer"}


def test_classic_members_leave_together_and_operators_remove_static_ones_by_their_instance_id() -> None:
    site = Site()
    site.join("consumer", instance_id="of a consumer")
    first = site.join_classic().answer.member_id
    static = site.join_classic(instance_id="i").answer.member_id
    epoch = site.group().epoch
    codes = site.leave_classic(
        (first, None),
        (first, None),
        ("", "i"),
        ("other", "i"),
        ("consumer", None),
        ("", "of a consumer"),
        ("", "nobody"),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [
        ErrorCode.NONE,
        unknown,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        unknown,
        unknown,
        unknown,
    ]
    assert set(site.group().members) == {"consumer"}
    assert site.group().epoch == epoch + 1
    assert static not in site.group().currents


def test_a_static_member_may_change_its_protocol_in_either_direction(site: Site) -> None:
    other = site.join("other")
    static = site.join("consumer", instance_id="i")
    site.settle(other, static)
    classic = site.join_classic(instance_id="i").answer
    assert classic.error_code == ErrorCode.NONE
    share = partitions_in(site.sync_classic(classic.member_id, classic.generation).answer.assignment)
    assert set(share["t"]) == static.partitions()
    back = site.join("back", instance_id="i")
    site.settle(other, back)
    assert back.partitions() == static.partitions()
    assert site.heartbeat_classic(classic.member_id, classic.generation, "i") == ErrorCode.FENCED_INSTANCE_ID


def test_an_assignment_is_written_in_the_version_in_which_the_member_subscribed() -> None:
    for version in (0, 1, 9):
        site, _, member_id = mixed()
        metadata = version.to_bytes(2, "big") + subscribed(["t"], {}, min(version, 3))[2:]
        generation = site.join_classic(member_id, metadata=metadata).answer.generation
        assignment = site.sync_classic(member_id, generation).answer.assignment
        assert int.from_bytes(assignment[:2], "big") == min(version, 3)
