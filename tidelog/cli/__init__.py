"""The command `tidelog`: one file per command. Slow imports are inside the commands.

- `acl`, `broker`, `cluster`, `config`, `consume`, `fault`, `group`, `log`, `pipeline`, `produce`,
  `producers`, `quota`, `reassign`, `storage`, `topic`, `transaction`, `user`, `verify`, `bench`: the command,
  or the group of commands, of this name
- `app`: the commands of `tidelog`, put together
- `client_events`, `failures`, `tables`, `pace`, `record_format`, `registered_values`: what commands print,
  and how
- `completion`: names of topics and groups, for the completion of a shell
- `consume_options`, `command_config`, `options`: options of commands
- `dump_indexes`, `dump_log`: `tidelog log dump` of each kind of file
- `http_port`: how a command finds the HTTP port of a broker, and sends requests to it
- `main`: the console command `tidelog`
- `reassignment_plan`: which brokers partitions are moved to
- `setting_changes`: the options that change settings of brokers and groups
- `passwords`: how commands get a password: from a file, a prompt, or the first line of the standard input
- `pipeline_errors`, `pipeline_progress`, `pipeline_reports`, `pipeline_run`: what the commands of jobs share
"""
