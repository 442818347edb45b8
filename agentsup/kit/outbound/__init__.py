"""Outgoing HTTP: the limits on the cost of an answer, for every client.

``limits`` has the limits, ``tls`` the trusted roots, ``proxy`` the rule which proxy is used.
Each library has one module that opens it: ``aiohttp_client``, ``httpx_client``,
``requests_client``; only code that needs that library anyway imports its module.
"""
