"""The metrics that clients push to this broker (KIP-714).

A broker imports it with the first client that asks for its subscription.
"""
