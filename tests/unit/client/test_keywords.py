"""What a client's constructor takes: a cluster, the settings of its tables, and nothing else."""

import inspect
from typing import Any, get_type_hints

import pytest

from tests.unit.wire.cluster_settings import another, with_another
from tidelog.client import Admin, ClusterConfig, Consumer, Producer
from tidelog.client.consumer.config import ConsumerConfig, ConsumerSettings
from tidelog.client.keywords import take_cluster
from tidelog.client.producer.config import ProducerConfig, ProducerSettings
from tidelog.client.share.config import ShareConsumerConfig, ShareConsumerSettings
from tidelog.protocol.settings import settings_of
from tidelog.wire.cluster_config import ClusterSettings

CLIENTS: list[Any] = [Producer, Consumer, Admin]
TABLES: dict[Any, tuple[Any, ...]] = {
    Producer: (ClusterConfig, ProducerConfig),
    Consumer: (ClusterConfig, ConsumerConfig),
    Admin: (ClusterConfig,),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_setting_of_a_cluster_is_a_keyword_of_every_client(client: Any) -> None:
    for each in settings_of(ClusterConfig):
        made = client(**with_another(each))
        assert getattr(made._cluster.config, each.attribute) == another(each), each
        assert each.attribute in inspect.signature(client).parameters


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_takes_the_way_to_a_cluster_whole_and_what_stands_beside_it_goes_first(client: Any) -> None:
    cluster = ClusterConfig("a:1,b:2", client_id="mine", request_timeout_ms=5)
    assert client(cluster=cluster)._cluster.config == cluster
    beside = client(cluster=cluster, client_id="other")._cluster.config
    assert (str(beside), beside.client_id, beside.request_timeout_ms) == ("a:1,b:2", "other", 5)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_defaults_that_a_constructor_shows_are_those_of_its_tables(client: Any) -> None:
    shown = {name: each.default for name, each in inspect.signature(client).parameters.items()}
    declared = {each.attribute: each.default for table in TABLES[client] for each in settings_of(table)}
    assert {name: shown[name] for name in declared} == declared | {"client_id": shown["client_id"]}
    assert shown["client_id"] == client()._cluster.config.client_id == f"tidelog-{client.__name__.lower()}"


@pytest.mark.parametrize(
    ("keywords", "tables"),
    [
        (ClusterSettings, (ClusterConfig,)),
        (ProducerSettings, TABLES[Producer]),
        (ConsumerSettings, TABLES[Consumer]),
        (ShareConsumerSettings, (ClusterConfig, ShareConsumerConfig)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_type_checkers_see_the_settings_that_the_tables_declare(keywords: Any, tables: Any) -> None:
    declared = [(table, each.attribute) for table in tables for each in settings_of(table)]
    hints = {name: get_type_hints(table)[name] for table, name in declared}
    assert get_type_hints(keywords) == hints | {"cluster": ClusterConfig}


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_keyword_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_server'"):
        client(bootstrap_server="a:1")


def test_what_belongs_to_the_client_itself_is_left_with_the_keywords() -> None:
    keywords: dict[str, Any] = {"client_id": "x", "acks": "all"}
    assert take_cluster(keywords, ProducerConfig, client_id="default").client_id == "x"
    assert keywords == {"acks": "all"}
    assert take_cluster({}, client_id="default").client_id == "default"
    with pytest.raises(TypeError, match="did you mean bootstrap_servers"):
        take_cluster({"bootstrap_server": "a:1"}, client_id="default")
