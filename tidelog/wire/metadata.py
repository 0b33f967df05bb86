"""The client's image of the cluster: nodes, topics, partitions and their leaders. Plain values.

Owns: the image, and how an answer to Metadata changes it. Invariants: an image is never changed, only
replaced. A partition's leader epoch never decreases within one topic, so a broker that lags behind cannot
undo newer metadata. A new topic of the same name starts again.

Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.types import TopicPartition

NO_TOPIC_ID: Final = UUID(int=0)
"""Of a topic whose broker has no ids."""


class Node(NamedTuple):
    """A broker as it advertises itself."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """`leader` is a node id, -1 for none. `leader_epoch` is -1 if the broker does not give it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic. `partitions` are in the order of their numbers, 0 to n-1. `error` is NONE if it is usable."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    error: ErrorCode


class ClusterImage(NamedTuple):
    """The nodes, topics and leaders of a cluster at one moment."""

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]

    def leader(self, key: TopicPartition) -> int:
        """Node id of the partition's leader, -1 if none is known."""
        info = self.partition(key)
        return -1 if info is None else info.leader

    def leader_epoch(self, key: TopicPartition) -> int:
        """That of the partition's leader, -1 if it is not known."""
        info = self.partition(key)
        return -1 if info is None else info.leader_epoch

    def partition(self, key: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    def topic_id(self, topic: str) -> UUID | None:
        """None if it is not known, or the brokers have no topic ids."""
        info = self.topics.get(topic)
        return None if info is None or info.topic_id == NO_TOPIC_ID else info.topic_id


EMPTY = ClusterImage(None, -1, {}, {})


def apply_metadata(image: ClusterImage, answer: "types.MetadataResponse") -> ClusterImage:
    """The image after a decoded Metadata answer. Topics that it does not name stay."""
    nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
    topics = dict(image.topics)
    for each in answer.topics:
        if each.name is not None:
            topics[each.name] = _topic(each.name, each, topics.get(each.name))
    return ClusterImage(answer.cluster_id, answer.controller_id, nodes, topics)


def with_leaders(
    image: ClusterImage, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[Node]
) -> ClusterImage:
    """The image after an answer that names leaders by (node id, leader epoch), and where nodes are (KIP-951).

    A leader is taken over if its epoch is later than the known one, and its node is known or named.
    """
    named = {node.node_id: node for node in nodes}
    topics, added = dict(image.topics), {}
    for key, (leader, epoch) in leaders.items():
        info = image.partition(key)
        node = named.get(leader) or image.nodes.get(leader)
        if info is None or node is None or epoch <= info.leader_epoch:
            continue
        added[leader] = node
        topic = topics[key.topic]
        partitions = list(topic.partitions)
        partitions[key.partition] = info._replace(leader=leader, leader_epoch=epoch)
        topics[key.topic] = topic._replace(partitions=tuple(partitions))
    return image._replace(nodes={**image.nodes, **added}, topics=topics) if added else image


def _topic(name: str, answer: "types.MetadataResponseTopic", known: TopicInfo | None) -> TopicInfo:
    is_same = known is not None and known.topic_id == answer.topic_id
    partitions = []
    for each in sorted(answer.partitions, key=lambda partition: int(partition.partition_index)):
        index, epoch = each.partition_index, each.leader_epoch
        if known is not None and is_same and index < len(known.partitions):
            old = known.partitions[index]
            if 0 <= epoch < old.leader_epoch:
                partitions.append(old)
                continue
        replicas, isr = tuple(each.replica_nodes), tuple(each.isr_nodes)
        partitions.append(PartitionInfo(index, each.leader_id, epoch, replicas, isr))
    return TopicInfo(
        name, answer.topic_id, answer.is_internal, tuple(partitions), error_code(answer.error_code)
    )
