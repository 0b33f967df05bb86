"""Who is late and who may join: a model that keeps every fetch decides each anew."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.replicas.followers import Followers

LAG_MS = 10
BROKERS = (2, 3)


class Fetch(NamedTuple):
    at_ms: int
    offset: int
    leader_end: int
    asked_after_ms: int


def had_all_at(fetches: list[Fetch], began_ms: int) -> int:
    """The last moment at which a follower had all that the leader's log held then, as its fetches show."""
    moments = [began_ms]
    for number, fetch in enumerate(fetches):
        if fetch.offset >= fetch.leader_end:
            moments.append(fetch.at_ms)
        # It holds now what the log held at the fetch before.
        elif number and fetch.offset >= fetches[number - 1].leader_end:
            moments.append(fetches[number - 1].at_ms)
    return max(moments)


@given(st.integers(0, 5), st.data())
def test_followers_are_judged_by_all_their_fetches(epoch_start: int, data: st.DataObject) -> None:
    began_ms = now_ms = data.draw(st.integers(0, 5))
    followers, end = Followers(epoch_start, began_ms), epoch_start
    fetches: dict[int, list[Fetch]] = {broker: [] for broker in BROKERS}
    for _ in range(data.draw(st.integers(0, 20))):
        now_ms += data.draw(st.integers(0, LAG_MS))
        end += data.draw(st.integers(0, 2))
        broker = data.draw(st.sampled_from(BROKERS))
        # A follower may cut its log back, so its offset may fall.
        fetch = Fetch(now_ms, data.draw(st.integers(0, end)), end, data.draw(st.integers(0, now_ms)))
        fetches[broker].append(fetch)
        started = data.draw(st.integers(7, 8))
        followers.fetched(broker, started, fetch.offset, end, now_ms, fetch.asked_after_ms)
        assert followers.replica_epoch(broker) == started
        high_watermark, since_ms = data.draw(st.integers(0, end)), data.draw(st.integers(0, now_ms))
        late, seen_ms, seen_end = (
            set(),
            now_ms + data.draw(st.integers(0, 20)),
            end + data.draw(st.integers(0, 1)),
        )
        for each, known in fetches.items():
            has_end = bool(known) and known[-1].offset == seen_end
            if not has_end and seen_ms - had_all_at(known, began_ms) > LAG_MS:
                late.add(each)
            may_join = bool(known) and known[-1].offset >= max(high_watermark, epoch_start)
            assert followers.may_join(each, high_watermark) == may_join
            has_asked = any(one.asked_after_ms >= since_ms for one in known)
            assert followers.have_asked_since([each], since_ms) == has_asked
        assert followers.late(BROKERS, seen_end, seen_ms, LAG_MS) == late
