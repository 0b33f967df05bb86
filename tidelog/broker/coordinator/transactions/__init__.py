"""Transactions: the machine that holds the state of each transactional id, and its records.

- `machine`: the ids of one partition of `__transaction_state`: what producers may ask
- `messages`, `records`: requests, answers and records as values
- `states`: the states of a transactional id, and the legal transitions between them
- `transaction`: the state of one transactional id: immutable, with the rules of its epochs
"""
