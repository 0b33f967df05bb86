"""Processors that consume, transform and produce in transactions while everything breaks.

`history` and `checker` are pure: what was observed, and what contradicts itself in it. `processor` is a
process that can be killed, over a `client`; `slots` starts, kills and pauses such processes;
`observation` reads what is visible; `trial` puts them together.
"""
