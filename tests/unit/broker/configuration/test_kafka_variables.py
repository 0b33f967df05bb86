"""Variables of Kafka's image set the settings of the same names; of the others one is told what to do."""

from tidelog.broker.configuration.broker_config import BrokerConfig, unknown_variables

# Of the quick start of Kafka's image, and what the image sets.
QUICK_START = {
    "KAFKA_NODE_ID": "7",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://shop:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "7@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_NUM_PARTITIONS": "3",
    "TIDELOG_LISTENERS": "PLAINTEXT://0.0.0.0:9092",
    "TIDELOG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
}


def test_the_quick_start_of_kafkas_image_starts_a_broker_with_its_settings() -> None:
    config = BrokerConfig.load(environ=QUICK_START)
    assert (config.node_id, config.num_partitions, config.group_initial_rebalance_delay_ms) == (7, 3, 0)
    [listener] = config.listener_configs
    assert (listener.listened, listener.advertised) == ("PLAINTEXT://localhost:9092", "PLAINTEXT://shop:9092")
    sources = {line.name: line.source for line in config.describe()}
    assert sources["num.partitions"] == "KAFKA_NUM_PARTITIONS"
    needless = "a broker here needs no controllers and no ZooKeeper: remove it"
    assert unknown_variables(QUICK_START) == dict.fromkeys(
        ("KAFKA_CONTROLLER_LISTENER_NAMES", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_PROCESS_ROLES"), needless
    )
