"""Parts of the API for the web page alone: sign-in, its own files, uploads, views."""
