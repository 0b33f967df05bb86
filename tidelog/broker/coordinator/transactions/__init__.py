"""Transactions: the machine that holds the state of each transactional id, and its records."""
