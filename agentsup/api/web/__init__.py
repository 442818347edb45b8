"""What the web page needs beyond the API: sign-in, its own files, uploads, views."""
