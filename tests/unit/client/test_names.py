"""The public names are all there, and none brings along what another needs."""

import subprocess
import sys

import pytest

import client

HEAVY = {"client.admin", "client.cluster", "client.consumer", "client.producer", "protocol.schema"}


@pytest.mark.parametrize("name", client.__all__)
def test_each_public_name_is_the_one_its_module_has(name: str) -> None:
    found = getattr(client, name)
    assert getattr(sys.modules[found.__module__], name) is found
    assert name in dir(client)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producers'"):
        _ = client.Producers


def test_errors_and_values_bring_no_producer_or_consumer_along() -> None:
    ask = "import sys, client; client.ClientError, client.TopicPartition; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.split())
