"""The one door to HTTP that goes out: what an answer may cost us is bounded here, for every client.

``limits`` says how much, ``decoding`` looks at what comes. Each library has one module that opens it: ``aiohttp_client``,
``httpx_client``, ``requests_client``; each is imported by those alone who have that library anyway.
"""
