"""Variables of Kafka's image set the settings of the same names; of the others one is told what to do."""

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError, unknown_variables

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


def test_kafkas_variable_is_stronger_than_tidelogs_and_weaker_than_a_flag() -> None:
    environ = {"TIDELOG_NODE_ID": "1", "KAFKA_NODE_ID": "2"}
    assert BrokerConfig.load(environ=environ).node_id == 2
    assert BrokerConfig.load({"node.id": 3}, environ=environ).node_id == 3


def test_coarse_settings_and_those_of_one_listener_have_variables_too() -> None:
    environ = {
        "KAFKA_LOG_RETENTION_HOURS": "2",
        "KAFKA_LISTENERS": "INSIDE://:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:SSL",
        "KAFKA_LISTENER_NAME_INSIDE_SSL_CLIENT_AUTH": "required",
    }
    config = BrokerConfig.load(environ=environ)
    assert config.log_retention_ms == 7_200_000
    assert config.of_listener("INSIDE").ssl_client_auth == "required"
    assert unknown_variables(environ) == {}


def test_a_value_out_of_bounds_is_refused_by_the_name_of_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions: .*got 'many' \(from KAFKA_NUM_PARTITIONS\)"):
        BrokerConfig.load(environ={"KAFKA_NUM_PARTITIONS": "many"})


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        ("KAFKA_HEAP_OPTS", "no Java program"),
        ("KAFKA_OPTS", "no Java program"),
        ("KAFKA_LOG_DIRS", "set KAFKA_DATA_DIR"),
        ("KAFKA_BROKER_ID", "KAFKA_NODE_ID"),
        ("KAFKA_ZOOKEEPER_CONNECT", "no ZooKeeper"),
        ("KAFKA_METADATA_LOG_DIR", "no controllers"),
        ("KAFKA_NUM_IO_THREADS", "set KAFKA_PROCESSES"),
        ("KAFKA_NO_SUCH", "no setting of this name"),
    ],
)
def test_what_means_nothing_here_is_named_with_what_to_do(variable: str, advice: str) -> None:
    assert advice in unknown_variables({variable: "1"})[variable]
    assert BrokerConfig.load(environ={variable: "1"}).sources == {}


def test_variables_of_a_service_called_kafka_set_nothing_and_are_not_named() -> None:
    environ = {
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_HOST": "elsewhere",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_SERVICE_PORT_HTTP": "9644",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert BrokerConfig.load(environ=environ).sources == {}
    assert unknown_variables(environ) == {}
