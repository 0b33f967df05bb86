"""Trials of malicious peers: the cost of their requests and connections for a normal client.

`largest` makes the largest request of every API from its declaration (pure), `attacks` what else a peer can
do; `gauge` measures what the broker uses, `trial` is the entry point.
"""
