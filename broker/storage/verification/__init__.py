"""Looking for damage in the files of a partition, with no broker running and nothing changed.

Owns what `tidelog log verify` knows of segments, indexes, snapshots and epochs. `partition` is the way in;
`findings` is what comes out. Memory is bounded by the producers of one partition, never by its size.

Invariants: files are opened for reading only; what is found is handed on at once and not kept; damage is what
no crash leaves behind, all else that deserves a word is a warning.
"""
