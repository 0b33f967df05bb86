"""The link holds every answer back, and clients that were told its port stay on it."""

import time
from pathlib import Path

from bench.loads.process import run_load
from bench.targets.slow_link import SlowLink
from bench.targets.tidelog import Tidelog
from bench.wire import Wire
from tests.ports import free_port
from tidelog.broker.testing.embedded import ThreadedBroker


def test_no_answer_comes_before_the_delay_is_over(tmp_path: Path) -> None:
    link = SlowLink(tmp_path / "link", 20)
    link.port = free_port()
    with ThreadedBroker() as broker:
        link.upstream_port = broker.port
        with link, Wire(link.port) as wire:
            begin = time.perf_counter()
            wire.metadata()
            assert time.perf_counter() - begin >= 0.02


def test_a_client_that_starts_at_the_link_does_all_its_work_there(tmp_path: Path) -> None:
    link = SlowLink(tmp_path / "link", 5)
    link.port = free_port()
    with ThreadedBroker(settings={"advertised.port": link.port}) as broker:
        link.upstream_port = broker.port
        with link:
            topic = broker.create_topic()
            work = {"work": "produce", "client": "tidelog", "topic": topic}
            run_load(link, "client_load", **work, seconds=30, records=100)
            with Wire(link.port) as wire:
                (node,) = wire.metadata().brokers
                assert node.port == link.port
                assert wire.end_offset(topic) >= 100


def test_a_broker_is_told_what_to_advertise(tmp_path: Path) -> None:
    assert f"advertised.port={(port := free_port())}" in Tidelog(tmp_path, advertised_port=port).command()
