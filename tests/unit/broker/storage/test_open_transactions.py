"""The last stable offset lies before every transaction that is open, or whose marker is not durable."""

from tidelog.broker.storage.open_transactions import NO_TRANSACTION, EndedTransaction, OpenTransactions


def test_what_ended_is_described_with_the_last_stable_offset_behind_it() -> None:
    transactions = OpenTransactions([(20, 8), (10, 7)])
    assert transactions.first_unstable == 10
    assert transactions.end(7, 30) == EndedTransaction(7, 10, 30, 20)
    assert transactions.end(8, 31) == EndedTransaction(8, 20, 31, 32)
    assert transactions.end(8, 32) is None


def test_the_bytes_before_the_first_are_those_it_was_located_at() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 10)
    transactions.locate(10, 1000)
    transactions.begin(8, 20)
    transactions.locate(20, 2000)
    transactions.locate(21, 2100)
    assert transactions.bytes_before == 1000
    transactions.end(7, 30)
    transactions.settle(31)
    assert (transactions.first_unstable, transactions.bytes_before) == (20, 2000)
    transactions.forget(8)
    transactions.forget(8)
    assert (transactions.first_unstable, transactions.bytes_before) == (NO_TRANSACTION, 0)


def test_many_that_end_in_their_order_take_constant_time_each() -> None:
    """A dict's first key takes longer and longer to find while its first keys are deleted."""
    transactions = OpenTransactions()
    count = 20_000
    for number in range(count):
        transactions.begin(number, number)
    for number in range(count):
        transactions.end(number, count + number)
        transactions.settle(count + number + 1)
        assert transactions.first_unstable == (number + 1 if number + 1 < count else NO_TRANSACTION)
