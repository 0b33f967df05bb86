"""Processors that consume, transform and produce in transactions during all kinds of faults.

`history` and `checker` are pure: what was observed, and which observations contradict each other. `processor`
is a process that can be killed, over a `client`; `slots` starts, kills and pauses such processes;
`observation` reads what is visible; `isolation` judges the history as lists and registers; `trial` puts them
together.
"""
