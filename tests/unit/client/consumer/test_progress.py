"""Records are finished when the next ones are asked for."""

from tidelog.client import ConsumerRecord, TimestampType, TopicPartition
from tidelog.client.consumer.progress import Progress

KEY = TopicPartition("t", 3)


def test_what_was_handed_out_is_unfinished_until_more_is_asked_for() -> None:
    progress = Progress()
    assert progress.unfinished() == {}
    progress.returned = ConsumerRecord("t", 3, 7, 0, TimestampType.CREATE_TIME, None, b"", (), -1, 0, -1)
    assert progress.unfinished() == {KEY: 7}
    progress.returned = {KEY: 8, TopicPartition("u", 0): 1}
    assert progress.unfinished() == {KEY: 8, TopicPartition("u", 0): 1}
    progress.finish()
    assert progress.unfinished() == {}
