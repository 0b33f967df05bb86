"""Faults that users request for tests, where `faults.enable` is set.

- `injection`: carries out the faults that a user ordered with `tidelog fault`, where `faults.enable` is set
- `producer_changes`: test changes to the producers that a partition remembers
- `rules`: decides which ordered fault applies to which request: the rules of `tidelog fault`
- `share_locks`: a test change to the locks of a share group
"""
