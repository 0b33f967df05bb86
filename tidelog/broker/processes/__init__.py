"""A broker of several processes (`tidelog serve --processes N`), each with partitions of its own.

The first process only starts, watches and ends the others. The store process owns the catalog and answers on
`http.port`. The broker processes serve; their store is the store process.
"""
