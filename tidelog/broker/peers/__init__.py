"""This broker as a client of the other brokers of its cluster.

A cluster of one broker imports `peers` only, and opens nothing.
"""
