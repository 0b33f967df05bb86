"""Reads of segments without a broker.

- `data_folders`: a data folder without its broker: the partitions in it, and where their logs start and end
- `remote_pieces`: remote segments of tiered topics as a source
- `segment_files`: one segment file: where a batch is, and the bytes of a range
- `segment_ranges`: a data folder's segment files as a source, without a broker
- `segment_transactions`: which transactions of a piece of a log were aborted, according to its segment files
"""
