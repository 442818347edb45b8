"""The routes of the internal API, one module for each subject."""
