"""The routes and pages of the console, one module per subject.

- `broker`: which broker this is
- `events`: the last events of the broker's log
- `overview`: the broker at one look, and its charts
- `records`: the records of a partition: pages, searches, what comes
- `topics`: topics, their partitions and settings
"""
