"""delivery=exactly_once: the rows of any query, stored once."""
