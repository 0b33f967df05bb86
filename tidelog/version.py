"""The version of this package, of its distribution and of its images.

Owns the number. hatch reads it here, and only from a line without an annotation. A test names each
file that repeats another number.
"""

VERSION = "0.1.0"
