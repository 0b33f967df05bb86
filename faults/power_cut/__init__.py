"""Power cuts on a real file system: ext4 on a disk that is a process, whose write cache is lost with it.

`volatile` is that disk's cache (pure), `fuse` gives it to the kernel as a file, `machine` puts ext4 on it and
runs the broker there, `trial` cuts the power and checks.
"""
