"""Archives of files: written whole, checked whole, unpacked only where nothing can lead out."""
