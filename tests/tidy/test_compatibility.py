"""The page on compatibility names all that Kafka has, and says why something is missing."""

import json

import pytest

from docs import compatibility
from tests import recorded_runs
from tests.frameworks import kafka_reference
from tests.tidy.house import ROOT
from tidelog.broker.configuration.broker_settings import BROKER_SETTINGS
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.broker.served_apis import BETWEEN_BROKERS, SERVED_APIS


def test_each_api_of_kafka_is_served_in_its_newest_version_or_has_a_reason() -> None:
    rows = {int(key): (here, note) for key, _, _, here, note in compatibility.apis()}
    assert rows.keys() == {each["key"] for each in compatibility.KAFKA["apis"]}
    assert [key for key, (here, note) in rows.items() if not (here or note)] == []
    assert SERVED_APIS.keys() - BETWEEN_BROKERS <= rows.keys()


def test_a_reason_for_an_older_version_ends_when_the_version_is_served() -> None:
    older = {
        each["name"]
        for each in compatibility.KAFKA["apis"]
        if (own := SERVED_APIS.get(each["key"])) is not None and own.last < each["last"]
    }
    assert compatibility.NEWER_VERSIONS.keys() == older


def test_each_setting_of_kafka_is_honoured_or_has_a_reason() -> None:
    tables = (
        compatibility.broker_settings,
        compatibility.topic_settings,
        compatibility.group_settings,
        compatibility.client_metrics_settings,
    )
    rows = [row for table in tables for row in table()]
    assert [row for row in rows if row.state != "honoured" and not row.note] == []
    assert {row.name for row in compatibility.topic_settings()} == TOPIC_SETTINGS.keys() - {
        "acks.all.durable"
    }
    here = {row.name for row in compatibility.broker_settings() if row.state != "refused"}
    assert here == compatibility.KAFKA["settings"]["broker"].keys() & (
        BROKER_SETTINGS.keys() | COARSE_SETTINGS
    )
    assert all(note for *_, note in compatibility.client_settings())


def test_a_setting_without_a_reason_is_an_error_that_names_the_file() -> None:
    with pytest.raises(LookupError, match=r"docs/compatibility\.py has no reason why new\.setting is not"):
        compatibility.reason("new.setting", compatibility.CLIENT_REASONS)


def test_each_suite_of_other_clients_was_run_without_a_failure() -> None:
    runs = json.loads(recorded_runs.FILE.read_text())
    assert runs.keys() == recorded_runs.SUITES.keys()
    assert all((ROOT / suite).exists() and run["passed"] and not run["failed"] for suite, run in runs.items())


def test_the_file_is_as_its_program_writes_it() -> None:
    text = kafka_reference.FILE.read_text()
    assert kafka_reference.as_text(json.loads(text)) == text
