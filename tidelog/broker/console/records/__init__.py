"""The records of a partition for people: found, decoded and shown in bounded steps.

- `csv_rows`: records as rows of a table that a spreadsheet opens
- `expressions`: conditions on JSON values, in a part of JMESPath
- `filters`: which records a visitor looks for
- `masking`: what of records some visitors may not see
- `reading`: the records of a topic: the newest or a page of them, one of them, what matches, what comes
- `rows`: records and batches as rows of an answer
- `shown_values`: bytes as text, JSON, Avro, Protobuf or hexadecimal digits, cut to what a page can show
- `stepwise_reading`: the records that a consumer may see, one bounded step of reading at a time
"""
