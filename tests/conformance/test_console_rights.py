"""Routes and pages of the console show and change what their user may see and change over Kafka's protocol.

The tests go through the table of routes, so a new one is tested without being named here. `NAMES` and
`OTHERS` have a value for each parameter that a route needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from structlog.testing import capture_logs

from tests.conformance.console_site import Answer, Visitor
from tests.conformance.registry import registry
from tests.conformance.secured import AUTHORIZER, PASSWORD, add_user, secured
from tests.conformance.test_console_signing_in import signed_in
from tidelog.broker.app import Broker
from tidelog.broker.console.route import ApiRoute, Page
from tidelog.broker.console.routes import PAGES, ROUTES
from tidelog.broker.security import required_access
from tidelog.broker.security.required_access import OF_CLUSTER, Right
from tidelog.client import Consumer, Producer
from tidelog.protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType

NAMES: Final[Mapping[str, Any]] = {
    "topic": "covert-topic",
    "partition": 0,
    "group_id": "covert-group",
    "transactional_id": "covert-transaction",
    "user": "covert-user",
    "principal": "User:covert-user",
    "client_id": "covert-client",
}
"""Parameters that name what no user but alice may see."""
OTHERS: Final[Mapping[str, Any]] = {
    "name": "covert-topic",
    "count": 2,
    "to": "earliest",
    "to_topic": "covert-topic",
    "offset": 0,
    "settings": {},
    "producer_epoch": 0,
    "quota": "producer_byte_rate",
    "password": "covert-password",
    "operation": "READ",
    "resource_type": "TOPIC",
    "fault": "cut",
    "subject": "covert-subject",
}
"""Parameters that some route needs."""
SCHEMAS = {
    "/subjects": ["covert-subject"],
    "/subjects/covert-subject/versions": [1],
    "/subjects/covert-subject/versions/1": {"id": 1, "schema": '"long"'},
}
CHANGES = [route for route in ROUTES if route.is_change]
READS = [route for route in ROUTES if not route.is_change]
RIGHTS = [right for right in vars(required_access).values() if isinstance(right, Right)]
IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Site(NamedTuple):
    """A broker with things that only alice may see, and its visitors."""

    broker: Broker
    alice: Visitor
    bob: Visitor
    """May do nothing at first."""
    producer_id: int


@asynccontextmanager
async def site(tmp_path: Path, **settings: object) -> AsyncIterator[Site]:
    rights = {"authorizer.class.name": AUTHORIZER, "super.users": "User:alice"}
    quick = {"group.initial.rebalance.delay.ms": 0}
    with registry(SCHEMAS) as (url, _):
        rights["console.schema.registry.url"] = url
        async with _with_hidden(secured(tmp_path, **rights, **quick, **settings)) as made:
            yield made


@asynccontextmanager
async def _with_hidden(starting: AbstractAsyncContextManager[Broker]) -> AsyncIterator[Site]:
    async with starting as broker:
        await add_user(broker, "covert-user")
        await broker.services.topics.create("covert-topic")
        client = {
            "bootstrap_servers": f"127.0.0.1:{broker.port}",
            "client_id": "covert-client",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
        async with (
            Producer(
                transactional_id="covert-transaction", transaction_timeout_ms=600_000, **client
            ) as producer,
            Consumer(
                "covert-topic", group_id="covert-group", auto_offset_reset="earliest", **client
            ) as consumer,
        ):
            async with producer.transaction():
                await producer.send("covert-topic", b"covert-value", key=b"covert-key")
            await consumer.getone()
            await consumer.commit()
            async with producer.transaction():
                await producer.send_and_wait("covert-topic", b"covert-value", key=b"covert-key")
                log = broker.services.replica("covert-topic", 0).log
                (entry,) = log.producers.latest()
                yield Site(broker, await signed_in(broker), await signed_in(broker, "bob"), entry.producer_id)


def values_of(route: ApiRoute, site: Site, name: str = "covert") -> dict[str, Any]:
    """The parameters of a request that names what is hidden, or what does not exist."""
    known = {**NAMES, **OTHERS, "producer_id": site.producer_id}
    sought = {"text": "value"} if route.path.endswith("/search") else {}
    return sought | {
        field.name: known[field.name].replace("covert", name)
        if isinstance(known[field.name], str)
        else known[field.name]
        for field in msgspec.structs.fields(route.parameters)
        if field.required or field.name in (*NAMES, "producer_id")
    }


def filled(path: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path, and the values that are not in it."""
    left = dict(values)
    for name in list(left):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", quote(str(left.pop(name)), safe=""))
    return path, left


async def ask(
    visitor: Visitor, route: ApiRoute, values: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    path, left = filled(route.path, values)
    if route.is_change:
        return await visitor.ask(route.method, path, left, headers)
    path = f"{path}?{urlencode(left)}" if left else path
    return await (visitor.begin(path) if route.stream else visitor.get(path))


def page_path(page: Page, site: Site, name: str) -> str:
    values = {key: value for route in page.sources for key, value in values_of(route, site, name).items()}
    path, left = filled(page.path, values)
    return f"{path}?{urlencode(left)}" if left else path


async def test_who_may_see_nothing_is_shown_nothing_and_changes_nothing(tmp_path: Path) -> None:
    """An answer about what is hidden is like the answer about what does not exist."""
    async with site(tmp_path) as made:
        for route in ROUTES:
            answer = await ask(made.bob, route, values_of(route, made))
            like = await ask(made.bob, route, values_of(route, made, "absent"))
            shown = f"{route.method} {route.path}: {answer.status} {answer.text}"
            assert answer.status == like.status, f"{shown}, but {like.status} {like.text}"
            assert "covert" not in like.text, f"{shown}; {like.text}"
            assert answer.text.count("covert") == like.text.count("absent"), f"{shown}; {like.text}"
            assert answer.status == 403 or not (route.is_change or route.stream or route.needs), shown
        for page in PAGES:
            answer = await made.bob.get(page_path(page, made, "covert"))
            like = await made.bob.get(page_path(page, made, "absent"))
            assert answer.status == like.status, page.path
            assert "covert" not in like.text, page.path
            assert answer.text.count("covert-") == like.text.count("absent-"), (page.path, answer.text)


async def test_who_may_see_everything_is_shown_what_is_hidden_from_others(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        shown = ""
        for route in READS:
            answer = await ask(made.alice, route, values_of(route, made))
            assert answer.status == 200, f"{route.path}: {answer.text}"
            shown += answer.text
        for page in PAGES:
            answer = await made.alice.get(page_path(page, made, "covert"))
            assert answer.status == 200, f"{page.path}: {answer.text}"
            shown += answer.text
        subjects = {route.path.split("/")[3] for route in READS}
        expected = {
            "topics": "covert-topic",
            "groups": "covert-group",
            "transactions": "covert-transaction",
            "clients": "covert-client",
        }
        for subject in subjects & expected.keys():
            assert expected[subject] in shown, subject


def satisfies(right: Right, needed: Right) -> bool:
    """Whether one right is or implies the other."""
    same = right.operation == needed.operation or right.operation in IMPLYING.get(needed.operation, ())
    return same and right.resource_type == needed.resource_type


async def test_a_route_needs_the_rights_of_its_row_and_shows_nothing_else(tmp_path: Path) -> None:
    names = {
        ResourceType.TOPIC: "covert-topic",
        ResourceType.GROUP: "covert-group",
        ResourceType.TRANSACTIONAL_ID: "covert-transaction",
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    async with site(tmp_path) as made:
        for turn, right in enumerate(RIGHTS):
            kind, name = right.resource_type, names[right.resource_type]
            who, allow = ("User:bob", "*"), Permission.ALLOW
            acl = Acl(kind, PatternType.LITERAL, name, *who, right.operation, allow)
            await made.broker.services.acls.create([acl])
            for at, route in enumerate(ROUTES):
                is_enough = all(any(satisfies(right, each) for each in need.rights) for need in route.needs)
                if is_enough and route.is_change:
                    continue  # What it changes is tested where its subject is.
                if not is_enough and (at + turn) % 4:
                    continue  # Each route is refused with some rights, each right at some routes.
                answer = await ask(made.bob, route, values_of(route, made))
                shown = f"{route.method} {route.path} with {right}: {answer.status} {answer.text}"
                if not is_enough:
                    assert answer.status == 403, shown
                elif route.needs:
                    assert answer.status != 403, shown
                for other, covert in names.items():
                    # As in Kafka, rights on the cluster let a user list the groups.
                    is_listed = (right.resource_type, other) == (ResourceType.CLUSTER, ResourceType.GROUP)
                    if other != right.resource_type and not is_listed:
                        assert covert not in answer.text, shown
            await made.broker.services.acls.delete([acl])


FOREIGN: Final = (
    {"Origin": "https://elsewhere.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "multipart/form-data; boundary=x"},
)


async def test_a_page_of_another_site_changes_nothing_and_the_attempt_is_logged(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        # Each route meets one set of headers, and the first one all of them.
        cases = [(route, FOREIGN[at % len(FOREIGN)]) for at, route in enumerate(CHANGES)]
        for route, headers in [*cases, *((CHANGES[0], each) for each in FOREIGN[1:])]:
            with capture_logs() as events:
                answer = await ask(made.alice, route, values_of(route, made), headers)
            assert answer.status in (400, 403), f"{route.method} {route.path} {headers}: {answer.text}"
            (change,) = [event for event in events if event["event"] == "console_change"]
            assert (change["user"], change["method"], change["code"]) == (
                "alice",
                route.method,
                answer.json["code"],
            )


async def test_a_console_that_only_reads_refuses_each_change_and_shows_all_else(tmp_path: Path) -> None:
    async with site(tmp_path, console_read_only=True) as made:
        for route in CHANGES:
            answer = await ask(made.alice, route, values_of(route, made))
            assert answer.status == 403, f"{route.method} {route.path}"
            assert "console.read.only" in answer.json["message"]
        for route in READS:
            assert (await ask(made.alice, route, values_of(route, made))).status == 200, route.path
        for page in PAGES:
            answer = await made.alice.get(page_path(page, made, "covert"))
            assert answer.status == 200, page.path
            for method in ("POST", "PUT", "DELETE"):
                assert f'data-api="{method} ' not in answer.text, f"{page.path} offers a change"


async def test_a_console_that_is_not_enabled_has_no_route_and_no_page(tmp_path: Path) -> None:
    async with secured(tmp_path, console_enable=False) as broker:
        visitor = Visitor(broker, {"Authorization": "Basic YWxpY2U6b3BlbiBzZXNhbWU6IMO8"})
        assert (await visitor.get("/metrics")).status == 200
        for path in ("/", "/console/sign-in", *(each.path for each in (*ROUTES, *PAGES))):
            assert (await visitor.get(path)).status == 404, path


async def test_each_answer_has_the_headers_and_the_method_must_be_one_of_the_route(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        assert (await made.bob.get("/console/static/console.css")).status == 200
        answers = [
            await made.bob.get(each) for each in ("/", "/api/v1/none", "/console/none", "/console/sign-in")
        ]
        for route in ROUTES:
            path, _ = filled(route.path, values_of(route, made))
            answer = await made.alice.ask("PATCH", path)
            assert answer.status == 405, path
            assert route.method in answer.headers["Allow"]
            answers.append(answer)
        for page in PAGES:
            path = page_path(page, made, "covert")
            head, answer = await made.alice.ask("HEAD", path), await made.alice.get(path)
            assert (head.status, head.text) == (200, "")
            assert (await made.alice.ask("POST", path)).status == 405
            answers += [head, answer]
        for answer in answers:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "same-origin"
            assert answer.headers["Cache-Control"] == "no-store"


def test_the_rows_of_the_table_hold_together() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert len({page.path for page in PAGES}) == len(PAGES)
    for route in ROUTES:
        fields = set(route.parameters.__struct_fields__)
        named = {need.field for need in route.needs} - {OF_CLUSTER}
        assert named | set(route.path_names) | set(route.logged) <= fields, route.path
        secrets = {"password", "key", "headers", *(["value"] if "records" in route.path else [])}
        assert not secrets & set(route.logged), f"{route.path}: what is logged is not secret"
        assert route.path.startswith("/api/v1/")
    for page in PAGES:
        assert all(not route.is_change and not route.stream for route in page.sources), page.path
