"""The records of a partition, as the console finds and shows them."""
