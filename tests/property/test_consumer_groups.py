"""Whatever members do, and whenever the broker restarts: no partition ever has two owners."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.coordinator.consumer_groups.site import (
    CLASSIC_SESSION_MS,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    ClassicClient,
    Client,
    Site,
)
from tidelog.protocol.errors import ApiError, ErrorCode

OFTEN = ["join", "join", "join classic", "beat", "beat", "beat"]
SELDOM = ["lose", "join again", "leave", "away", "back", "die", "grow", "restart"]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(OFTEN + SELDOM),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=40,
)
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class World:
    """A group of clients of both protocols that read one topic."""

    def __init__(self) -> None:
        # A group that became a classic one would wait for its members.
        self.site = Site({"t": 5}, SETTINGS._replace(may_downgrade=False))
        self.clients: list[Client | ClassicClient] = []
        self.away: list[Client] = []
        self.uncertain: set[str] = set()
        """Members that did not get an answer: they say all of themselves in their next heartbeat."""
        self.count = 0

    def act(self, action: str, number: int) -> None:
        clients = self.clients
        if action == "join" or not clients:
            self.count += 1
            instance_id = f"i{self.count}" if number % 2 else None
            clients.append(self.site.join(f"m{self.count}", instance_id=instance_id))
            return
        chosen = clients[number % len(clients)]
        match action:
            case "join classic":
                self.join_classic(ClassicClient(self.site, "", 0))
            case "beat":
                self.beat(chosen)
            case "lose" if isinstance(chosen, Client):
                try:
                    self.site.heartbeat(
                        chosen.member_id, chosen.epoch, owned=chosen.owned, instance_id=chosen.instance_id
                    )
                except ApiError as error:
                    if error.code not in FENCED:
                        raise
                self.uncertain.add(chosen.member_id)
            case "join again" if isinstance(chosen, Client):
                again = self.site.join(chosen.member_id, instance_id=chosen.instance_id)
                clients[clients.index(chosen)] = again
                self.uncertain.discard(again.member_id)
            case "leave":
                clients.remove(chosen)
                if isinstance(chosen, Client):
                    chosen.leave()
                else:
                    assert self.site.leave_classic((chosen.member_id, None)) == [ErrorCode.NONE]
            case "away" if isinstance(chosen, Client) and chosen.instance_id:
                clients.remove(chosen)
                chosen.leave(-2)
                if chosen.member_id in self.uncertain:  # It may be told to revoke in an answer that it lost.
                    chosen.owned = {}
                self.away.append(chosen)
            case "back" if self.away:
                self.count += 1
                left = self.away.pop()
                clients.append(self.site.join(f"m{self.count}", instance_id=left.instance_id))
            case "die":
                clients.remove(chosen)
                self.pass_ms(SESSION_MS)
            case "grow":
                self.site.topics["t"] += 1
                self.site.topics_changed()
            case "restart":
                numbers = self.site.numbers
                self.site = self.site.restarted()
                self.site.numbers = numbers
                for each in (*clients, *self.away):
                    each.site = self.site

    def join_classic(self, client: ClassicClient) -> None:
        answer = self.site.join_classic().answer
        client.member_id, client.generation = answer.member_id, answer.generation
        client.join()
        self.clients.append(client)

    def beat(self, client: Client | ClassicClient) -> None:
        try:
            if isinstance(client, Client) and client.member_id in self.uncertain:
                client.beat(names=["t"], timeout_ms=REBALANCE_MS)
                self.uncertain.remove(client.member_id)
            else:
                client.beat()
        except ApiError as error:
            if error.code not in FENCED:
                raise
            self.clients.remove(client)
        except AssertionError:
            assert client.member_id not in self.site.group().members
            self.clients.remove(client)

    def pass_ms(self, duration_ms: int) -> None:
        """Time passes; members send heartbeats, those that are away do not."""
        step_ms = CLASSIC_SESSION_MS // 2
        for _ in range(duration_ms // step_ms):
            for client in list(self.clients):
                self.beat(client)
            self.site.pass_ms(step_ms)
        self.away = [each for each in self.away if each.member_id in self.site.group().members]

    def check(self) -> None:
        held: list[Any] = [part for each in (*self.clients, *self.away) for part in each.partitions()]
        assert len(held) == len(set(held))

    def settle(self) -> None:
        self.away = []
        self.pass_ms(2 * SESSION_MS)
        if self.clients:
            shares = sorted(len(each.partitions()) for each in self.clients)
            assert sum(shares) == self.site.topics["t"]
            assert shares[-1] - shares[0] <= 1
            assert self.site.group().state.value == "Stable"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ACTIONS)
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(actions: list[tuple[str, int]]) -> None:
    world = World()
    for action, number in actions:
        world.act(action, number)
        world.check()
    world.settle()
