"""Groups of the consumer protocol (KIP-848): members, epochs, target and current assignments.

`machine.ConsumerGroups` is the machine. `heartbeats` has the rules of ConsumerGroupHeartbeat,
`reconciliation` the way of a member to its target, `assignors` who is to read what, `records` what is written
of a group.
"""
