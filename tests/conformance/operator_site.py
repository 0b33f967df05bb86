"""One who operates a broker, in scripts: commands as they are typed, requests to the HTTP port, and what
clients do meanwhile."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any
from urllib.request import urlopen

import aiohttp
import jmespath
from confluent_kafka import Consumer, TopicPartition

from tests.conformance.conftest import RunningBroker
from tests.conformance.console_site import Visitor
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.raw import NOW_MS, RawClient, batch, connected
from tests.terminal import Terminal
from tests.unit.broker.handlers.transactional import transactional_batch
from tests.waiting import DEADLINE_SECONDS, until, wait_for
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.client import Producer as ClientProducer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batch, iter_batches

PEER = ConfluentKafka()


class OperatorSite(Terminal):
    """A command with the name of a method of HTTP asks the HTTP port: `GET PATH | EXPRESSION` shows what an
    expression of JMESPath finds in the answer, `POST PATH {…}` sends JSON. `x*20` in a path stands for
    twenty of them."""

    broker: RunningBroker
    stack: AsyncExitStack
    client: RawClient | None = None

    async def sorted(self, *words: str) -> str:
        """`sorted tidelog …`: of several partitions, in no order."""
        return "\n".join(sorted((await self.tidelog(*words[1:])).splitlines()))

    async def fill(self, topic: str) -> None:
        """A topic of two partitions, with ten records in the first, from timestamp 1000 on."""
        PEER.create_topics(self.broker.address, {topic: 2})
        async with ClientProducer(bootstrap_servers=self.broker.address) as producer:
            for number in range(10):
                _ = await producer.send(topic, b"v", partition=0, timestamp_ms=1_000 + number)

    def librdkafka(self, topic: str, *words: str) -> None:
        """Writes a record with this key and value."""
        key, value = (None if word == "null" else word.encode() for word in words)
        PEER.write(self.broker.address, {topic: ("none", [Message(0, 1000, key, value)])})

    def _consumer(self, group: str, protocol: str = "classic") -> Consumer:
        fixed = {"bootstrap.servers": self.broker.address, "enable.auto.commit": False}
        named = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        return Consumer({**fixed, **named})

    def commit(self, group: str, topic: str, *offsets: str) -> None:
        """Of a group of librdkafka without members, in the partitions from 0 on."""
        consumer = self._consumer(group)
        wanted = [TopicPartition(topic, index, int(offset)) for index, offset in enumerate(offsets)]
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str) -> str:
        consumer = self._consumer(group)
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_SECONDS)
        consumer.close()
        return str(found.offset)

    async def member(self, group: str, topic: str, protocol: str = "classic") -> None:
        """Of librdkafka; it reads a topic until the end of the case, and its group is stable."""
        consumer = self._consumer(group, protocol)
        self.stack.callback(consumer.close)
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.1) and consumer.assignment(), "an assignment", DEADLINE_SECONDS)
        while "Stable" not in await self.tidelog("group", "describe", group):
            consumer.poll(0.1)

    async def connect(self) -> None:
        """A raw connection, of which the following commands are."""
        self.client = await self.stack.enter_async_context(connected(self.broker.broker.port))

    async def _raw(self) -> RawClient:
        if self.client is None:
            await self.connect()
        assert self.client is not None
        return self.client

    async def producer_id(self) -> str:
        return str(await (await self._raw()).producer_id())

    async def send(self, topic: str, *words: str) -> None:
        """A batch `VALUE` or `VALUE=ID/SEQUENCE`, of so many records with `VALUE*2=…`; words: `acks=`."""
        acks = next((int(word[5:]) for word in words if word.startswith("acks=")), -1)
        await (await self._raw()).send_batch(_batch(words[0]), topic=topic, acks=acks)

    async def answer(self) -> str:
        """To the oldest batch: its offset or its error; or how the connection ended."""
        client = await self._raw()
        try:
            result = await client.receive_result()
        except (asyncio.IncompleteReadError, ConnectionResetError):
            self.client = None
            return "the connection is closed"
        return ErrorCode(result.error_code).name if result.error_code else str(result.base_offset)

    async def produce(self, topic: str, *batches: str) -> str:
        answers = []
        for each in batches:
            await self.send(topic, each)
            answers.append(await self.answer())
        return " ".join(answers)

    async def stored(self, topic: str, count: str) -> None:
        """Once so many records are."""
        replica = self.broker.broker.services.replica(topic, 0)
        await until(lambda: replica.high_watermark >= int(count))

    async def log(self, topic: str) -> str:
        """The values of partition 0."""
        async with connected(self.broker.broker.port) as reader:
            found = await reader.read(topic, 0, 0)
        return " ".join(_values(found.records or b"")) or "empty"

    async def prepare(self, name: str) -> str:
        """A transaction with a record in t that is to wait for a decision, and whose producer is gone."""
        return await self.begin(name, is_prepared=True)

    async def begin(self, name: str, *, is_prepared: bool = False) -> str:
        async with connected(self.broker.broker.port) as client:
            given = await client.begin(name, "t", is_prepared=is_prepared)
        return ErrorCode(given.error_code).name if given.error_code else f"producer {given.producer_id}"

    async def problem(self, name: str) -> str:
        """What the overview says of it, once it is one: a look at the broker is shared for some seconds."""
        shown = f"| problems[?name=='{name}'].text"
        while (found := await self.GET("/api/v1/overview", shown)) == "nothing":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return found

    def hang(self, topic: str, producer: str) -> None:
        """A transaction that no coordinator knows."""
        replica = self.broker.broker.services.replica(topic, 0)
        producer_id, epoch = map(int, producer.split(":"))

        async def append() -> None:
            # No client can: the coordinator of this broker must know the partition before its first batch.
            sent = transactional_batch(Producer(producer_id, epoch))
            replica.append_as_leader(sent, NOW_MS, permit=lambda _: None)
            await replica.flushed()

        self.broker.run(append())

    async def reached(self, name: str, state: str) -> None:
        """Once a transaction is in this state; `ended` stands for Empty and Complete…."""
        wanted = ("Empty", "CompleteAbort", "CompleteCommit") if state == "ended" else (state,)
        while (await self.tidelog("transaction", "describe", name)).split()[1] not in wanted:
            pass

    def metrics(self, start: str) -> str:
        """The names of the series that begin so."""
        address = f"http://127.0.0.1:{self.broker.http_port}/metrics"
        with urlopen(address, timeout=DEADLINE_SECONDS) as scraped:
            lines = scraped.read().decode().splitlines()
        return "\n".join(line.rpartition(" ")[0] for line in lines if line.startswith(start))

    def knows(self, user: str, *password: str) -> str:
        """Whether this is the password of the user."""
        users = self.broker.broker.services.users
        return str(self.broker.run(users.verify_password(user, " ".join(password))))

    async def GET(self, path: str, *words: str) -> str:  # noqa: N802 (the name of the method)
        return await self._asked("GET", path, words)

    async def POST(self, path: str, *words: str) -> str:  # noqa: N802
        return await self._asked("POST", path, words)

    async def PUT(self, path: str, *words: str) -> str:  # noqa: N802
        return await self._asked("PUT", path, words)

    async def DELETE(self, path: str, *words: str) -> str:  # noqa: N802
        return await self._asked("DELETE", path, words)

    async def _asked(self, method: str, path: str, words: tuple[str, ...]) -> str:
        body, _, expression = " ".join(words).partition("| ")
        values = json.loads(body) if body else {} if method == "DELETE" else None
        path = re.sub(r"(\w)\*(\d+)", lambda found: found[1] * int(found[2]), path)
        answer = await Visitor(self.broker.broker).ask(method, path, values)
        found: Any = json.loads(answer.text) if answer.text else None
        if answer.status >= 300:
            code = found.get("code", "") if isinstance(found, dict) else ""
            said = found.get("message", found.get("error")) if isinstance(found, dict) else answer.text
            return self.same(" ".join(filter(None, (str(answer.status), code, said))))
        if expression:
            found = jmespath.search(expression, found)
        lines = found if isinstance(found, list) else [found]
        return self.same("\n".join(json.dumps(each, ensure_ascii=False) for each in lines) or "nothing")

    async def status(self, *words: str) -> str:
        """`status METHOD PATH`: of an answer that may go on without end."""
        found = await Visitor(self.broker.broker).begin(words[1])
        code = found.json["code"] if found.text else ""
        return f"{found.status} {code}".strip()

    async def page(self, path: str, *words: str) -> str:
        """Whether a page has this text."""
        found = await Visitor(self.broker.broker).get(path)
        return f"{found.status} {' '.join(words) in found.text}"

    async def order_from_a_web_page(self) -> str:
        """A fault, as a form of a browser can."""
        url = f"http://127.0.0.1:{self.broker.http_port}/faults"
        async with aiohttp.ClientSession() as http, http.post(url, data='{"fault": "drop"}') as answer:
            return str(answer.status)


def _batch(word: str) -> bytes:
    value, _, producer = word.partition("=")
    value, _, count = value.partition("*")
    producer_id, _, sequence = producer.partition("/")
    return batch(value, int(producer_id or -1), int(sequence or -1), count=int(count or 1))


def _values(records: Any) -> list[str]:
    data = bytes(records)
    return [
        (record.value or b"").decode()
        for position, header in iter_batches(data)
        for record in decode_batch(data[position : position + header.size_bytes])
    ]
