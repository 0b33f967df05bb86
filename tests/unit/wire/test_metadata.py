"""How an answer to Metadata changes what is known."""

from types import SimpleNamespace as Bag

from tidelog.protocol.types import TopicPartition
from tidelog.wire.metadata import EMPTY, apply_metadata


def partition(index: int, leader: int, epoch: int) -> Bag:
    return Bag(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        error_code=0,
    )


def answer(*partitions: Bag, topic: str = "t", topic_id: str = "id", nodes: tuple[int, ...] = (1, 2)) -> Bag:
    return Bag(
        brokers=[Bag(node_id=node, host=f"host{node}", port=9092, rack=None) for node in nodes],
        cluster_id="c",
        controller_id=1,
        topics=[
            Bag(error_code=0, name=topic, topic_id=topic_id, is_internal=False, partitions=list(partitions))
        ],
    )


def test_partitions_are_known_by_number_whatever_their_order_in_the_answer() -> None:
    image = apply_metadata(EMPTY, answer(partition(1, 2, 0), partition(0, 1, 0)))
    assert image.leader(TopicPartition("t", 0)) == 1
    assert image.leader(TopicPartition("t", 1)) == 2
    assert image.leader(TopicPartition("t", 2)) == -1
    assert image.leader(TopicPartition("t", -1)) == -1
    assert image.leader(TopicPartition("u", 0)) == -1


def test_a_leader_of_an_older_epoch_does_not_come_back() -> None:
    image = apply_metadata(EMPTY, answer(partition(0, 2, 5)))
    image = apply_metadata(image, answer(partition(0, 1, 4)))
    assert image.leader(TopicPartition("t", 0)) == 2
    image = apply_metadata(image, answer(partition(0, 1, 6)))
    assert image.leader(TopicPartition("t", 0)) == 1


def test_a_topic_that_was_created_anew_starts_anew() -> None:
    image = apply_metadata(EMPTY, answer(partition(0, 2, 5)))
    image = apply_metadata(image, answer(partition(0, 1, 0), topic_id="another"))
    assert image.leader(TopicPartition("t", 0)) == 1


def test_topics_that_an_answer_does_not_name_stay_and_nodes_do_not() -> None:
    image = apply_metadata(EMPTY, answer(partition(0, 1, 0)))
    image = apply_metadata(image, answer(partition(0, 1, 0), topic="u", nodes=(2,)))
    assert set(image.topics) == {"t", "u"}
    assert set(image.nodes) == {2}
