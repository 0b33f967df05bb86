"""Consumer groups of the classic protocol: members, generations, assignments.

`machine.Groups` is the machine: `join`, `sync`, `heartbeat` and `leave` give Decisions for the runtime,
`check_commit` says whether offsets may be committed, `describe`, `subscribed_topics` and `deletion` serve
operators, `loaded` starts the sessions after a replay. `records` has what is written of a group.
"""
