"""The syntax of `topics` and `users`; no message has a password."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError
from tidelog.broker.configuration.initial_objects import InitialTopic, initial_topics, initial_users


def test_a_variable_names_topics_with_their_partitions_and_replicas_and_users_with_their_passwords() -> None:
    environ = {"TIDELOG_TOPICS": "orders:3, clicks:12:2,plain,", "TIDELOG_USERS": "alice:se:cret,bob:other"}
    config = BrokerConfig.load(environ=environ)
    topics = [InitialTopic("orders", 3), InitialTopic("clicks", 12, 2), InitialTopic("plain")]
    assert initial_topics(config.topics) == topics
    assert initial_users(config.users) == {"alice": "se:cret", "bob": "other"}


def test_a_file_has_lists_so_a_password_may_have_a_comma(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('topics = ["orders:3"]\nusers = ["alice:a,b"]\n')
    config = BrokerConfig.load(file=file)
    assert (initial_topics(config.topics), initial_users(config.users)) == (
        [InitialTopic("orders", 3)],
        {"alice": "a,b"},
    )


@pytest.mark.parametrize("text", ["orders:", "orders:0", "orders:three", "orders:1:2:3", "orders:100001"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"orders:3:2\), got '{text}'"):
        BrokerConfig.load({"topics": text})


@pytest.mark.parametrize("text", ["a b", ":3", "x" * 250])
def test_a_name_that_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="topics: Topic name is invalid"):
        BrokerConfig.load({"topics": text})


@pytest.mark.parametrize("text", ["alice", ":s3cret", "alice:"])
def test_a_user_without_a_password_is_refused_and_no_password_is_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load({"users": f"bob:h1dden,{text}"})
    assert "entry 2" in str(refused.value)
    assert not any(each in str(refused.value) for each in ("s3cret", "h1dden"))


def test_the_passwords_are_shown_nowhere() -> None:
    config = BrokerConfig.load({"users": "alice:s3cret"})
    assert "s3cret" not in "".join(map(str, config.describe()))
    assert "s3cret" not in repr(config)
