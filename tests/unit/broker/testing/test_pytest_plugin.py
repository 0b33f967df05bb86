"""The plugin as a user's project meets it: in a pytest of its own, with blocking and asynchronous tests."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

_BLOCKING = """
    from confluent_kafka import Producer

    def test_a_blocking_client(tidelog_broker, tidelog_topic):
        delivered = []
        producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
        producer.produce(tidelog_topic, b"a", on_delivery=lambda error, message: delivered.append(error))
        assert producer.flush(120) == 0
        assert delivered == [None]
"""
_ASYNCHRONOUS = """
    import pytest
    from aiokafka import AIOKafkaProducer

    MARK
    async def test_an_asynchronous_client(tidelog_broker, tidelog_topic):
        producer = AIOKafkaProducer(bootstrap_servers=tidelog_broker.bootstrap_servers)
        await producer.start()
        stored = await producer.send_and_wait(tidelog_topic, b"a")
        await producer.stop()
        assert (stored.topic, stored.offset) == (tidelog_topic, 0)
"""
_FIXTURES = """
    import pytest

    SEEN = []

    @pytest.fixture(scope="session")
    def tidelog_settings():
        return {"num.partitions": 2, "log.segment.bytes": 1000}

    @pytest.mark.parametrize("number", [1, 2])
    def test_each_test_has_a_broker_of_its_own(tidelog_broker, number):
        assert not [path for path in SEEN if path.exists()]
        SEEN.append(tidelog_broker.data_dir)
        assert tidelog_broker.create_topic("same-name") == "same-name"

    @pytest.mark.tidelog(settings={"log.segment.bytes": 5000}, partitions=3)
    def test_a_mark_goes_before_the_projects_settings(tidelog_broker, tidelog_topic):
        broker = tidelog_broker.broker
        assert broker.config.log_segment_bytes == 5000
        assert broker.config.num_partitions == 2
        assert len(broker.services.catalog.topic(tidelog_topic).partitions) == 3

    @pytest.mark.parametrize("number", [1, 2])
    def test_the_broker_of_the_session_is_one(tidelog_session_broker, number):
        tidelog_session_broker.create_topic(f"topic-{number}")
        assert len(list(tidelog_session_broker.data_dir.glob("topic-*"))) == number

    @pytest.mark.tidelog(topics=3)
    def test_a_misspelt_mark(tidelog_broker):
        pass
"""


def run(pytester: pytest.Pytester, mode: str, **files: str) -> pytest.RunResult:
    pytester.makepyfile(**files)
    pytester.makeini(f"[pytest]\nasyncio_mode = {mode}\naddopts = --strict-markers --strict-config")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


def test_the_fixtures_serve_every_kind_of_test_and_say_what_a_mark_takes(pytester: pytest.Pytester) -> None:
    result = run(
        pytester, "auto", test_1=_BLOCKING, test_2=_ASYNCHRONOUS.replace("MARK", ""), test_3=_FIXTURES
    )
    result.assert_outcomes(passed=7, errors=1)
    result.stdout.fnmatch_lines(["*takes the keywords settings and partitions only*"])


def test_the_fixtures_serve_strict_asynchronous_tests(pytester: pytest.Pytester) -> None:
    result = run(pytester, "strict", test_2=_ASYNCHRONOUS.replace("MARK", "@pytest.mark.asyncio"))
    result.assert_outcomes(passed=1)


def test_a_project_that_asks_for_no_broker_pays_for_none() -> None:
    """pytest loads the plugin in every project of an environment, whatever that tests."""
    script = (
        "import sys, tidelog.broker.testing.pytest_plugin\n"
        "print('tidelog.broker.app' in sys.modules, 'uvloop' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
