"""The public names are all there, and none brings along what another needs."""

import ast
import asyncio
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog import client, wire

HEAVY = {
    "tidelog.client.admin.admin",
    "tidelog.wire.cluster",
    "tidelog.client.consumer.consumer",
    "tidelog.client.producer.producer",
    "tidelog.protocol.schema",
}


def test_each_public_name_is_the_one_its_module_has() -> None:
    for name in client.__all__:
        found = getattr(client, name)
        assert getattr(sys.modules[found.__module__], name) is found
        assert name in dir(client)


def test_the_top_of_the_package_has_every_public_name_and_no_other() -> None:
    assert all(getattr(tidelog, name) is getattr(client, name) for name in client.__all__)
    assert set(client.__all__) <= set(dir(tidelog))
    with pytest.raises(AttributeError, match="no attribute 'Producers'"):
        _ = tidelog.Producers


def test_a_star_import_gives_every_public_name() -> None:
    names: dict[str, object] = {}
    exec("from tidelog import *", names)
    assert names.keys() - {"__builtins__"} == set(client.__all__)


def test_every_error_that_the_client_raises_or_documents_has_a_public_name() -> None:
    texts = set()
    folders = [Path(each.__file__ or "").parent for each in (client, wire)]
    for source in (each for folder in folders for each in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                texts.add(ast.unparse(node.exc))
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                texts.add(ast.get_docstring(node) or "")
    errors = {error for text in texts for error in re.findall(r"\b[A-Z]\w+Error\b", text)}
    # The client itself catches this one.
    errors.remove("ProtocolError")
    assert errors - {*dir(builtins), *dir(asyncio)} <= set(client.__all__)


def test_a_type_checker_knows_the_names_at_the_top_of_the_package() -> None:
    class Listener(tidelog.ConsumerRebalanceListener):
        """mypy --strict refuses a base class of unknown type."""

    assert issubclass(Listener, client.ConsumerRebalanceListener)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producers'"):
        _ = client.Producers


def test_errors_and_values_bring_no_producer_or_consumer_along() -> None:
    ask = "import sys, tidelog; tidelog.ClientError, tidelog.TopicPartition; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.split())
