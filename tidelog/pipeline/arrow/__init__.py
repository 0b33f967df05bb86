"""Batches to Arrow and back, without a Python object per record.

- `arrays`: conversion between numpy and Arrow arrays through their buffers
- `batches`: many batches at once: their headers as columns of numbers
- `columnar`: record batches to Arrow columns
- `encoding`: Arrow columns, encoded into record batches without a Python object per record
- `record_ends`: where records end
- `vectors`: the fields of many records at once, as numpy arrays of numbers and positions
"""
