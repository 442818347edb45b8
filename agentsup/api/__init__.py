"""The internal HTTP API: an app factory, its checks, its routes and the document that names them."""
