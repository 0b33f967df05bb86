"""Work on a data folder while no broker runs on it.

- `catalog_rebuilding`: a new catalog from the folders, when the catalog was lost or is old
- `etcd_catalogs`: the catalog moves to etcd; the producer ids of one that was restored are raised
- `first_users`: the first user of a broker, or a new password for one
- `remote_verification`: checks the remote segments of the partitions in a data folder
- `verification`: searches a whole data folder for damage, while no broker runs on it
"""
