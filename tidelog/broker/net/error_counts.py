"""How often each error code is in a response, as Kafka's `errorCounts` counts them for ErrorsPerSec.

Owns the counting, once for every field with a code (top level, topic, partition, resource), made from the
declarations of responses. Invariant: pure.

Source: `AbstractResponse.errorCounts`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tidelog.protocol.hot import FetchResponse, ProducePartitionResult
from tidelog.protocol.messages.declaration import Field, Message
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

ErrorCount = Callable[[Any], dict[int, int] | Steps[dict[int, int]] | None]
"""None stands for exactly one NONE, which is by far the most frequent."""


def count_produce_errors(
    response: Sequence[tuple[str, Sequence[ProducePartitionResult]]],
) -> Steps[dict[int, int]] | None:
    if len(response) == 1 and len(response[0][1]) == 1 and response[0][1][0].error_code == 0:
        return None
    return _count(result.error_code for _, results in response for result in results)


def count_fetch_errors(response: FetchResponse) -> dict[int, int] | Steps[dict[int, int]]:
    topics = response.topics
    if response.error_code == 0 and len(topics) == 1 and len(topics[0][1]) == 1:
        code = int(topics[0][1][0].error_code)
        return {0: 2} if code == 0 else {0: 1, code: 1}
    of_partitions = (result.error_code for _, results in response.topics for result in results)
    return _count(chain((int(response.error_code),), of_partitions))


def _count(codes: Iterable[int]) -> Steps[dict[int, int]]:
    pace = Pace(CHECKS_PER_STEP)
    counts: dict[int, int] = {}
    for code in codes:
        counts[code] = counts.get(code, 0) + 1
        if pace.spent():
            yield
    return counts


_Codes = Callable[[Mapping[str, Any]], Iterator[int]]


def _codes_in(fields: Sequence[Field]) -> _Codes | None:
    """A function that gives the codes of one struct with these fields, or None if no field has a code."""
    own = [field.name for field in fields if field.name in ("error_code", "partition_error_code")]
    nested = [
        (field.name, of_element)
        for field in fields
        if field.is_array and field.fields and (of_element := _codes_in(field.fields)) is not None
    ]
    if not own and not nested:
        return None

    def codes(values: Mapping[str, Any]) -> Iterator[int]:
        for name in own:
            yield int(values.get(name, 0))
        for name, of_element in nested:
            for element in values.get(name) or ():
                yield from of_element(element)

    return codes


def error_count_of(api_key: ApiKey) -> ErrorCount:
    """The function that counts the codes in a response of this API, made from the response's declaration."""
    if api_key == ApiKey.PRODUCE:
        return count_produce_errors
    if api_key == ApiKey.FETCH:
        return count_fetch_errors
    return declared_error_count(APIS[api_key].response)


def declared_error_count(response: Message) -> ErrorCount:
    codes = _codes_in(response.fields)
    return lambda values: _count(() if codes is None else codes(values))
