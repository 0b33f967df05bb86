"""How the codes in a response are counted."""

from collections.abc import Callable
from typing import Any

from tidelog.broker.net.error_counts import error_count_of
from tidelog.protocol.hot import FetchPartitionResult, FetchResponse, ProducePartitionResult
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import finish


def counter(api_key: ApiKey) -> Callable[[Any], Any]:
    count = error_count_of(api_key)
    return lambda response: finish(count(response))


def test_each_partition_of_a_produce_response_counts() -> None:
    count = counter(ApiKey.PRODUCE)
    good, bad = ProducePartitionResult(0, 0), ProducePartitionResult(1, 45)
    assert count([("a", [good])]) is None
    assert count([("a", [bad])]) == {45: 1}
    assert count([("a", [good, bad]), ("b", [good])]) == {0: 2, 45: 1}
    assert count([]) == {}


def test_a_fetch_response_counts_once_as_a_whole_and_once_for_each_partition() -> None:
    count = counter(ApiKey.FETCH)
    results = [FetchPartitionResult(0, 0), FetchPartitionResult(1, 1)]
    assert count(FetchResponse(0, 0, 0, [("a", results)])) == {0: 2, 1: 1}
    assert count(FetchResponse(0, 70, 0, [])) == {70: 1}


def test_a_response_counts_every_code_at_every_level_and_a_missing_one_as_none() -> None:
    metadata = counter(ApiKey.METADATA)
    topics = [{"error_code": 3}, {"partitions": [{"error_code": 0}, {"error_code": 5}]}]
    assert metadata({"topics": topics}) == {3: 1, 0: 3, 5: 1}
    assert metadata({}) == {0: 1}
    assert counter(ApiKey.INIT_PRODUCER_ID)({}) == {0: 1}
    assert counter(ApiKey.API_VERSIONS)({"error_code": 35, "api_keys": [{"api_key": 18}]}) == {35: 1}
