"""Closed segments in an object store: what the objects are, for the broker and for who reads them without it.

- `manifest`: what of a partition's log is in remote storage: the truth, and its format
- `object_names`: the form of the names of objects
- `object_store`: where objects are: a folder or a bucket, by its URL
- `folder_store`: objects as files of a folder
- `bucket_store`: objects in a bucket of S3
- `partition_objects`: the objects of one partition, and the replacement of its manifest by compare-and-set
"""
