"""What a broker's services look like at this moment, as plain values. They read, and know nothing of HTTP.

- `broker`: which broker this is
- `events`: the last events of the broker's log
"""
