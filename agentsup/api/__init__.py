"""The internal HTTP API: routes, access, the WebSocket, the page and the document that names them.

Offers: an app for aiohttp, built of the services that it is given.
Entry: ``server/listener`` builds and runs it; one module in ``routes`` for each noun.
Owns: the sessions, codes and uploads of the page.
Never: decides what a service decides, or knows who implements it.
"""
