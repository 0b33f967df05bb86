"""delivery=mirror: the rows of source partitions, stored once."""
