"""`tidelog fault`: make a running broker fail on request, to see what a client does then.

Faults are ordered on the broker's HTTP port, if `tidelog serve --enable-faults` allows it.
`injection`, `producer_changes` and `share_locks` in `broker.fault_injection` say what each fault does.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from tidelog.cli.failures import Failure, run_with_admin
from tidelog.cli.http_port import HttpAddress, ask, find, url
from tidelog.cli.options import (
    DEFAULT_CLUSTER,
    ToCluster,
    Topic,
    argument,
    option,
    parameters_of,
    with_parameters,
)
from tidelog.cli.tables import counted, print_table
from tidelog.wire.cluster_config import ClusterConfig

app = typer.Typer(
    no_args_is_help=True, help="Make a broker fail on request. Start it with `tidelog serve --enable-faults`."
)

AnyTopic: TypeAlias = Annotated[
    str | None, argument(metavar="[TOPIC]", help="Only requests that name this topic. Without it, all.")
]
Partition: TypeAlias = Annotated[
    int | None, option("--partition", min=0, help="Only requests that name this partition.")
]
ClientId: TypeAlias = Annotated[str | None, option("--client-id", help="Only requests of this client.")]
Count: TypeAlias = Annotated[
    int, typer.Option("--count", "-n", min=0, help="Number of requests. 0: all, until cleared.")
]
Skip: TypeAlias = Annotated[
    int, typer.Option("--skip", min=0, help="Number of requests that are answered as usual first.")
]
Api: TypeAlias = Annotated[
    str,
    typer.Option(
        "--api",
        help="Kind of request: produce, fetch, metadata, init_producer_id, share_fetch or share_acknowledge.",
    ),
]
ProducerId: TypeAlias = Annotated[
    int,
    typer.Argument(metavar="PRODUCER_ID", min=0, help="Id of the producer. `tidelog producers` lists it."),
]
OnePartition: TypeAlias = Annotated[int, typer.Option("--partition", min=0, help="Partition of the topic.")]


def _which_requests(
    topic: AnyTopic = None,
    count: Count = 1,
    skip: Skip = 0,
    partition: Partition = None,
    client_id: ClientId = None,
    api: Api = "produce",
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> tuple[dict[str, object], str | None, ClusterConfig]:
    """The options that every order of a fault has: which requests it is for, and where the broker is."""
    values: dict[str, object] = {
        "topic": topic,
        "count": count or None,
        "skip": skip,
        "partition": partition,
        "client_id": client_id,
        "api": api,
    }
    return values, http, cluster


def _which_producer(
    topic: Topic,
    producer_id: ProducerId,
    partition: OnePartition = 0,
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> tuple[dict[str, object], str | None, ClusterConfig]:
    """The arguments of every change of a producer: which one it is of, and where the broker is."""
    return {"topic": topic, "partition": partition, "producer_id": producer_id}, http, cluster


def _orders(
    which: Callable[..., tuple[dict[str, object], str | None, ClusterConfig]],
    show: Callable[[dict[str, Any], dict[str, Any]], None],
) -> Callable[[Callable[..., dict[str, object]]], Callable[..., None]]:
    """A decorator: a command named as the function orders what that says of its arguments, for `which`.
    `show` prints the order and its answer."""

    def decorate(own: Callable[..., dict[str, object]]) -> Callable[..., None]:
        mine = parameters_of(own)

        @functools.wraps(own)
        def command(**given: Any) -> None:
            values = own(**{each.name: given.pop(each.name) for each in mine})
            more, http, cluster = which(**given)
            ordered = {**values, **more}
            show(ordered, _ask("POST", "/faults", ordered, http, cluster))

        return app.command(own.__name__)(with_parameters(command, [*mine, *parameters_of(which)]))

    return decorate


def _show_order(_: dict[str, Any], fault: dict[str, Any]) -> None:
    times = "until cleared" if fault["remaining"] is None else f"next {fault['remaining']}"
    where = "" if fault["topic"] is None else f" of {fault['topic']}"
    parts = (fault["api"] + where, times, *filter(None, [_details(fault)]))
    print(f"ordered {fault['fault']} {fault['id']}: {', '.join(parts)}")


def _show_change(ordered: dict[str, Any], changed: dict[str, Any]) -> None:
    who = "producer {producer_id} on {topic}-{partition}".format_map(ordered)
    before = changed["last_sequence_before"]
    was = "it was not known" if before is None else f"its last sequence was {before}"
    if ordered["fault"] == "sequence":
        print(f"{who} continues at {changed['next_sequence']} in epoch {changed['producer_epoch']} ({was})")
    else:
        print(f"{who} is forgotten ({was})")


_order = _orders(_which_requests, _show_order)
_change = _orders(_which_producer, _show_change)


@_order
def drop() -> dict[str, object]:
    """Lose acknowledgements: the broker stores the batch and never answers.

    Answers are in order. So no later answer comes on this connection either. After its request timeout, the
    client opens a new connection and sends again.
    """
    return {"fault": "drop"}


@_order
def delay(
    delay_ms: Annotated[int, typer.Argument(metavar="MS", min=1, help="Time in milliseconds.")],
) -> dict[str, object]:
    """Delay answers. Each one also delays the later answers on its connection."""
    return {"fault": "delay", "delay_ms": delay_ms}


@_order
def error(
    code: Annotated[str, typer.Argument(metavar="CODE", help="Name or number of Kafka's error.")],
    after: Annotated[
        bool, typer.Option("--after", help="Store the batch first. Without it, nothing is stored.")
    ] = False,
) -> dict[str, object]:
    """Answer with an error for every partition of the request."""
    return {"fault": "error", "error": code, "when": "after" if after else "before"}


@_order
def cut(
    before: Annotated[
        bool, typer.Option("--before", help="Store nothing. Without it, the batch is stored and durable.")
    ] = False,
) -> dict[str, object]:
    """Close the connection and do not answer."""
    return {"fault": "cut", "when": "before" if before else "after"}


@_change
def forget() -> dict[str, object]:
    """Make a partition forget a producer. Its next batch gets UNKNOWN_PRODUCER_ID."""
    return {"fault": "forget"}


@_change
def expire() -> dict[str, object]:
    """Let a producer expire now, as if it had been idle for producer.id.expiration.ms.

    A producer with an open transaction does not expire.
    """
    return {"fault": "expire"}


@_change
def sequence(
    next_sequence: Annotated[
        int,
        typer.Option(
            "--next",
            min=0,
            max=2**31 - 1,
            help="Sequence that the broker expects next. After 2147483647 comes 0.",
        ),
    ] = 2**31 - 10,
    epoch: Annotated[
        int | None,
        option(
            "--epoch", min=0, max=2**15 - 1, help="New epoch of the producer. Without it, the epoch stays."
        ),
    ] = None,
) -> dict[str, object]:
    """Change the sequence that the broker expects next, for example to one before the overflow.

    Use it with a client that asks the broker for its next sequence, as a resumed session does. A client that
    counts for itself gets OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    return {"fault": "sequence", "next_sequence": next_sequence, "producer_epoch": epoch}


@app.command("expire-locks")
def expire_locks(
    group: Annotated[str, argument(metavar="GROUP", help="Name of the share group.")],
    topic: Topic,
    partition: OnePartition = 0,
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """End the locks of all records that members of a share group hold, as if their time had passed."""
    values: dict[str, object] = {"fault": "expire_locks", "group_id": group, "topic": topic}
    ended = _ask("POST", "/faults", values | {"partition": partition}, http, cluster)
    print(f"{ended['records']} records of {topic}-{partition} are locked no longer")


@app.command("list")
def list_faults(
    finished: Annotated[
        bool, typer.Option("--finished", help="Show also the last 100 faults that are finished.")
    ] = False,
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Show the ordered faults, oldest first, and how often each was applied."""
    answer = _ask("GET", "/faults", None, http, cluster)
    faults = [*(answer["finished"] if finished else ()), *answer["faults"]]
    rows = [
        (
            fault["id"],
            fault["fault"],
            fault["api"],
            "-" if fault["topic"] is None else fault["topic"],
            "-" if fault["partition"] is None else fault["partition"],
            fault["hits"],
            "until cleared" if fault["remaining"] is None else fault["remaining"],
            _details(fault),
        )
        for fault in faults
    ]
    print_table(("ID", "FAULT", "API", "TOPIC", "PARTITION", "APPLIED", "LEFT", "DETAILS"), rows)


@app.command()
def clear(
    fault_id: Annotated[
        int | None, argument(metavar="[ID]", min=1, help="Id of the fault. Without it, all.")
    ] = None,
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Cancel ordered faults. Their changes to producers stay."""
    path = "/faults" if fault_id is None else f"/faults/{fault_id}"
    cleared = _ask("DELETE", path, None, http, cluster)["cleared"]
    print(f"cleared {counted(cleared, 'fault')}")


def _details(fault: dict[str, Any]) -> str:
    parts = []
    if fault["delay_ms"] is not None:
        parts.append(f"{fault['delay_ms']} ms")
    if fault["error"] is not None:
        parts.append(fault["error"])
    if fault["fault"] in ("error", "cut"):
        parts.append(f"{fault['when']} it takes effect")
    if fault["skip"]:
        parts.append(f"after {fault['skip']} more")
    if fault["client_id"] is not None:
        parts.append(f"client {fault['client_id']}")
    return ", ".join(parts)


def _ask(
    method: str, path: str, body: dict[str, object] | None, http: str | None, cluster: ClusterConfig
) -> dict[str, Any]:
    """What the broker's HTTP port answers. Raises Failure for anything but success."""
    address = http or run_with_admin(find, cluster)
    if address is None:
        raise Failure("the broker does not name its HTTP port: name it with --http HOST:PORT")
    status, answer = ask(address, cluster, method, path, body)
    if status >= 400:
        raise Failure(str(answer.get("error", f"{url(address)}{path} answers {status}")))
    return answer
