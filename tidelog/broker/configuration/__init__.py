"""The settings of a broker and of topics: their tables, their sources, and what holds now."""
