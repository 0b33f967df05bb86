"""Topics by name or by pattern."""

import pytest

from tidelog.client.groups.subscription import TopicSubscription
from tidelog.protocol.errors import ErrorCode
from tidelog.wire.metadata import EMPTY, PartitionInfo, TopicInfo


def topic(name: str, *, is_internal: bool = False, partitions: int = 1) -> TopicInfo:
    infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(partitions))
    return TopicInfo(name, None, is_internal, infos, ErrorCode.NONE)


IMAGE = EMPTY._replace(
    topics={
        each.name: each
        for each in (
            topic("a-1"),
            topic("a-2"),
            topic("b-a-1"),
            topic("a-internal", is_internal=True),
            topic("a-gone", partitions=0),
        )
    }
)


def test_a_pattern_matches_from_the_beginning_and_no_internal_topic() -> None:
    assert TopicSubscription.of((), "a-").topics(IMAGE) == {"a-1", "a-2"}


def test_names_are_subscribed_to_whether_they_exist_or_not() -> None:
    assert TopicSubscription.of(["x", "a-1"], None).topics(IMAGE) == {"x", "a-1"}


def test_newer_metadata_may_have_a_name_that_was_not_asked_for() -> None:
    assert not TopicSubscription.of(["a-1"], None).is_incomplete(IMAGE)
    assert TopicSubscription.of(["x", "a-1"], None).is_incomplete(IMAGE)


@pytest.mark.parametrize(("topics", "pattern"), [((), None), (("a",), "a"), ((), "(")])
def test_one_of_topics_and_a_valid_pattern_is_needed(topics: tuple[str, ...], pattern: str | None) -> None:
    with pytest.raises(ValueError, match=r"topics or a pattern|regular expression"):
        TopicSubscription.of(topics, pattern)


def test_a_text_is_no_list_of_topics() -> None:
    with pytest.raises(TypeError, match="list"):
        TopicSubscription.of("topic", None)
