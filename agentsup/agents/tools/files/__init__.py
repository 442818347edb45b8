"""The tools that read and write files of the workspace."""
