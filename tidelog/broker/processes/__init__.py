"""A broker of several processes (`tidelog serve --processes N`), each with partitions of its own.

The first process only starts, watches and ends the others. The store process owns the catalog and answers on
`http.port`. The broker processes serve; their store is the store process.

- `broker_process`: one of the processes that serve clients
- `expositions`: the metrics of several processes as one text
- `http_proxy`: one HTTP port for all processes
- `moves`: moves the folders of partitions to their processes, while nothing runs
- `ownership_lock`: only one broker of several processes uses a data folder
- `parent_pipe`: messages between the parent process and another one, and how each notices the other's end
- `placement`: which process gets which partition
- `restarts`: when a process that has ended is started again
- `serving`: serves a broker that has several processes, or had several at its last start
- `store_process`: the process that owns the catalog
- `supervisor`: the parent process
"""
