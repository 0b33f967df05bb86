"""Who creates and deletes more partitions than its quota allows is refused, or waits."""

import pytest

from tidelog.broker.limits.client_quotas import Bucket
from tidelog.broker.limits.mutation_quota import MutationQuota
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

NEWEST = 99


def quota(bucket: Bucket | None, key: ApiKey, version: int, now: float = 0.0) -> MutationQuota:
    return MutationQuota(bucket, key, version, lambda: now)


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.CREATE_TOPICS, 6), (ApiKey.DELETE_TOPICS, 5), (ApiKey.CREATE_PARTITIONS, 3)],
)
def test_a_strict_version_refuses_changes_while_the_client_is_in_debt(key: ApiKey, version: int) -> None:
    bucket = Bucket(rate=2.0, burst_seconds=10.0)
    strict = quota(bucket, key, version)
    strict.charge(20)
    strict.charge(4)
    assert not strict.is_exceeded
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        strict.charge(1)
    assert strict.is_exceeded
    # What was refused is not charged.
    assert bucket.delay_seconds(0.0) == 2.0
    quota(bucket, key, version, now=2.0).charge(1)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.CREATE_TOPICS, 5),
        (ApiKey.DELETE_TOPICS, 4),
        (ApiKey.CREATE_PARTITIONS, 2),
        (ApiKey.METADATA, NEWEST),
    ],
)
def test_an_older_version_accepts_all_changes_and_the_client_waits(key: ApiKey, version: int) -> None:
    bucket = Bucket(rate=2.0, burst_seconds=10.0)
    permissive = quota(bucket, key, version)
    permissive.charge(20)
    assert not permissive.is_exceeded
    permissive.charge(4)
    permissive.charge(4)
    assert permissive.is_exceeded
    assert bucket.delay_seconds(0.0) == 4.0


def test_without_a_quota_everything_is_accepted() -> None:
    unlimited = quota(None, ApiKey.CREATE_TOPICS, NEWEST)
    unlimited.charge(1_000_000)
    assert not unlimited.is_limited
    assert not unlimited.is_exceeded
