"""Searches the files of a partition for damage, with no broker running and nothing changed.

- `findings`: what a verification reports: where, what is wrong, what was expected there and what was found
- `indexes`: checks that the entries of the two indexes name existing batches
- `partition`: checks the folder of one partition
- `producers`: checks that the batches of a log follow the rules of idempotence, and that the snapshots agree
- `segment`: checks one segment: it must be a chain of whole batches, each with the offset that follows
- `transactions`: checks the index of aborted transactions of a segment

Memory is bounded by the producers of one partition, not by its size.

Invariants: files are opened for reading only; findings are reported at once and not kept; damage is what no
crash leaves behind, all else that is worth reporting is a warning.
"""
