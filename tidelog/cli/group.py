"""`tidelog group`: list, describe and delete groups, change their settings, and move their offsets.

Uses `client.Admin`. Lag is the number of offsets from a group's committed offset to the end of the log. A
share group has a start offset instead, and its lag is the number of records that are not done. The offsets
of a group are changed only while it has no members, because members would overwrite them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tidelog.cli.failures import Failure, run, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, group_argument, option, read_timestamp
from tidelog.cli.setting_changes import change_settings, delete_option, read_changes, set_option
from tidelog.cli.tables import as_objects, counted, print_table
from tidelog.client import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.coordinator.offsets.reset import Reset
    from tidelog.client import Admin, CommittedOffset, Consumer, GroupDescription
    from tidelog.wire.cluster_config import ClusterConfig

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe, change and delete consumer groups and share groups, move offsets.",
)

Group: TypeAlias = Annotated[str, group_argument(help="Id of the group.")]
Groups: TypeAlias = Annotated[list[str], group_argument(help="Ids of groups.")]
_DEAD = "Dead"
_SHARE = "share"
_OWN = 8
"""Source of a setting in DescribeConfigs: the group itself."""


@app.command("list")
def list_groups(as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Print all groups, their types and states."""
    groups = run_with_admin(lambda admin: admin.groups.list(), cluster)
    rows = [(each.group_id, each.type, each.state) for each in groups]
    print_table(("GROUP", "TYPE", "STATE"), rows, as_json=as_json)


@app.command()
def describe(groups: Groups, as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Show the members, offsets and lag of groups."""
    run(_describe(groups, as_json, cluster), cluster)


async def _describe(group_ids: list[str], as_json: bool, cluster: ClusterConfig) -> None:
    from tidelog.client import Admin, Consumer

    async with Admin(cluster=cluster) as admin, Consumer(cluster=cluster) as consumer:
        for group_id in group_ids:
            group = await admin.groups.describe(group_id)
            if group.state == _DEAD:
                raise _no_group(group_id)
            columns, rows = await _offset_rows(admin, consumer, group)
            members = [(member.member_id, member.client_host) for member in group.members]
            if as_json:
                facts = {"group": group_id, "type": group.type, "state": group.state}
                lists = {
                    "members": as_objects(("MEMBER ID", "HOST"), members),
                    "offsets": as_objects(columns, rows),
                }
                print(json.dumps({**facts, "protocol": group.protocol, **lists}))
                continue
            count = f"{len(members)} member" + "s" * (len(members) != 1)
            print("  ".join((group_id, group.type, group.state, count, group.protocol)).rstrip())
            for member in members:
                print("", *member, sep="  ")
            print_table(columns, rows)


@app.command()
def config(
    group: Group,
    assignments: Annotated[list[str] | None, set_option("share.auto.offset.reset=earliest")] = None,
    deletions: Annotated[list[str] | None, delete_option("the brokers' value")] = None,
    as_json: AsJson = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """List the settings of a group, or change them. The group need not exist yet."""
    from tidelog.client import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.GROUP, group)
    changes = read_changes(assignments, deletions)
    if changes:
        change_settings(resource, group, changes, cluster)
        return
    entries = run_with_admin(lambda admin: admin.describe_configs([resource]), cluster)[resource]
    rows = [
        (each.name, each.value, "this group" if each.source == _OWN else "all groups") for each in entries
    ]
    print_table(("SETTING", "VALUE", "SET FOR"), rows, as_json=as_json)


@app.command()
def lag(
    groups: Annotated[
        list[str] | None, group_argument(metavar="[GROUP]", help="Ids of groups. Without one, all groups.")
    ] = None,
    watch: Annotated[
        float | None,
        option(
            "--watch", metavar="SECONDS", min=0.1, help="Print it again after so many seconds, until Ctrl-C."
        ),
    ] = None,
    as_json: AsJson = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Show how far groups are behind, per topic."""
    try:
        run(_lags(groups, watch, as_json, cluster), cluster)
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _lags(
    group_ids: list[str] | None, watch: float | None, as_json: bool, cluster: ClusterConfig
) -> None:
    import asyncio

    from rich.console import Console

    from tidelog.client import Admin, Consumer

    terminal = Console()
    async with Admin(cluster=cluster) as admin, Consumer(cluster=cluster) as consumer:
        while True:
            rows = []
            for group_id in group_ids or [each.group_id for each in await admin.groups.list()]:
                rows += await _topic_rows(admin, consumer, group_id)
            if watch is not None and not as_json:
                terminal.clear()
            print_table(("GROUP", "TOPIC", "PARTITIONS", "LAG"), rows, as_json=as_json)
            if watch is None:
                return
            try:
                await asyncio.sleep(watch)
            except asyncio.CancelledError:  # Ctrl-C is the usual end.
                return


async def _topic_rows(admin: Admin, consumer: Consumer, group_id: str) -> list[tuple[object, ...]]:
    """One row per topic of a group; the lag is None where that of no partition is known."""
    group = await admin.groups.describe(group_id)
    if group.state == _DEAD:
        raise _no_group(group_id)
    by_topic: dict[str, list[int | None]] = {}
    for topic, _, *_, behind in (await _offset_rows(admin, consumer, group))[1]:
        by_topic.setdefault(topic, []).append(behind)
    return [
        (
            group_id,
            topic,
            len(lags),
            sum(known) if (known := [each for each in lags if each is not None]) else None,
        )
        for topic, lags in sorted(by_topic.items())
    ]


def _no_group(group_id: str) -> Failure:
    return Failure(f"there is no group {group_id!r}; `tidelog group list` shows all")


async def _offset_rows(
    admin: Admin, consumer: Consumer, group: GroupDescription
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The table of the group's offsets: its columns, and its rows. They begin with topic and partition, and
    end with the lag."""
    if group.type == _SHARE:
        shared = await admin.groups.share_offsets(group.group_id)
        return ("TOPIC", "PARTITION", "START OFFSET", "LAG"), [
            (*where, each.start_offset, None if each.lag < 0 else each.lag) for where, each in shared.items()
        ]
    offsets = await admin.groups.offsets(group.group_id)
    ends = await _ends(admin, consumer, list(offsets))
    return ("TOPIC", "PARTITION", "COMMITTED", "NEXT OFFSET", "LAG"), [
        (*where, committed.offset, *_lag(committed, ends.get(where))) for where, committed in offsets.items()
    ]


def _lag(committed: CommittedOffset, end: int | None) -> tuple[object, object]:
    """Where the log ends, and how far that is from what was committed."""
    return (None, None) if end is None else (end, max(end - committed.offset, 0))


async def _ends(
    admin: Admin, consumer: Consumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The next offset of each partition that exists."""
    present = set(await admin.list_topics()) & {topic for topic, _ in partitions}
    known = {
        TopicPartition(topic.name, each.partition)
        for topic in await admin.describe_topics(sorted(present))
        for each in topic.partitions
    }
    return await consumer.end_offsets([each for each in partitions if each in known])


@app.command()
def delete(groups: Groups, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Delete groups without members, with their committed offsets."""

    async def work(admin: Admin) -> None:
        for group_id in groups:
            await admin.groups.delete([group_id])
            print(f"deleted {group_id}")

    run_with_admin(work, cluster)


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topics: Annotated[
        list[str] | None,
        option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only of this topic. May be repeated. Default: all topics of the group.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first offset.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_offset: Annotated[int | None, option("--to-offset", min=0, help="To this offset.")] = None,
    to_timestamp: Annotated[
        int | None,
        option(
            "--to-timestamp",
            metavar="TIME",
            parser=read_timestamp,
            help="To the first record that is not older than this time: milliseconds since 1970, or "
            "2026-11-21T13:00:00 (UTC).",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, option("--shift-by", help="By this number of offsets, negative to move back.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the result and change nothing.")] = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Change the committed offsets, or the start offsets of a share group, of a group without members.

    An offset outside of its log is moved to the nearest one inside.
    """
    from tidelog.broker.coordinator.offsets.reset import Reset, ResetTo

    values = {ResetTo.OFFSET: to_offset, ResetTo.TIMESTAMP: to_timestamp, ResetTo.SHIFT: shift_by}
    given = [Reset(to, value) for to, value in values.items() if value is not None]
    given += [Reset(ResetTo.EARLIEST)] * to_earliest + [Reset(ResetTo.LATEST)] * to_latest
    if len(given) != 1:
        raise typer.BadParameter(
            "expected one of --to-earliest, --to-latest, --to-offset, --to-timestamp and --shift-by"
        )
    run(_reset(group, topics, given[0], dry_run, cluster), cluster)


async def _new_offsets(
    reset: Reset, consumer: Consumer, partitions: list[TopicPartition], before: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The new offset of each of these partitions that has one."""
    from tidelog.broker.coordinator.offsets.reset import PartitionFacts, ResetTo

    first = await consumer.beginning_offsets(partitions)
    end = await consumer.end_offsets(partitions)
    found = {}
    if reset.to is ResetTo.TIMESTAMP:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, reset.value))
    after = {}
    for each in partitions:
        committed = before.get(each)
        at = found.get(each)
        facts = PartitionFacts(first[each], end[each], committed, None if at is None else at.offset)
        if (offset := reset.new_offset(facts)) is not None:
            after[each] = offset
    return after


async def _reset(
    group_id: str, topics: list[str] | None, reset: Reset, dry_run: bool, cluster: ClusterConfig
) -> None:
    from tidelog.client import Admin, Consumer

    async with Admin(cluster=cluster) as admin, Consumer(cluster=cluster) as consumer:
        group = await admin.groups.describe(group_id)
        if group.members:
            raise Failure(
                f"group {group_id!r} has {counted(len(group.members), 'member')}; stop them first, or they"
                " overwrite it"
            )
        if group.type == _SHARE:
            change = admin.groups.alter_share_offsets
            shared = await admin.groups.share_offsets(group_id)
            before = {where: each.start_offset for where, each in shared.items()}
        else:
            change = admin.groups.commit
            before = {where: each.offset for where, each in (await admin.groups.offsets(group_id)).items()}
        if topics is None:
            partitions = list(await _ends(admin, consumer, list(before)))
        else:
            partitions = [
                TopicPartition(topic.name, each.partition)
                for topic in await admin.describe_topics(topics)
                for each in topic.partitions
            ]
        if not partitions:
            raise Failure(f"group {group_id!r} has committed nothing; name a topic with --topic")
        after = await _new_offsets(reset, consumer, partitions, before)
        if not dry_run:
            await change(group_id, after)
        rows = [(*where, before.get(where), offset) for where, offset in after.items()]
        print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), rows)
