"""What a broker's services look like at this moment, as plain values. They read, and know nothing of HTTP.

- `broker`: which broker this is
- `condition`: what may be wrong with a broker, gathered
- `events`: the last events of the broker's log
- `overview`: a broker at one look
- `problems`: what is wrong right now, in words, with the remedy, pure
- `records`: the records of a partition: pages, searches, what comes
- `topics`: topics, their partitions and settings
"""
