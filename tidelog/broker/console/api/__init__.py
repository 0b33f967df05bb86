"""The routes and pages of the console, one module per subject.

- `broker`: which broker this is
"""
