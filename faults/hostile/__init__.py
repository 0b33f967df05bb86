"""Trials of peers that mean harm: what their requests and connections cost a client that behaves.

`largest` makes the largest request of every API from its declaration (pure), `attacks` what else a peer can
do; `gauge` measures what the broker spends, `trial` is the way in.
"""
