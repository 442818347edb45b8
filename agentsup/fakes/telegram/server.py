"""FakeTelegram: a strict Bot API server on the loopback, with people and trouble on demand.

    async with FakeTelegram(folder) as fake:
        bot = fake.bot(username="helper_bot")
        ...  # a client of fake.url with bot.token; people through TelegramDriver(fake.url)

What it knows lies in the folder and outlives both a killed client and a killed fake.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from agentsup.fakes.entropy import SeededEntropy
from agentsup.fakes.telegram import faults, files
from agentsup.fakes.telegram.control import Control
from agentsup.fakes.telegram.faults import Fault
from agentsup.fakes.telegram.limits import Limits
from agentsup.fakes.telegram.methods import HANDLERS
from agentsup.fakes.telegram.polling import Polls
from agentsup.fakes.telegram.refusals import Refused, flood, refused
from agentsup.fakes.telegram.requests import Call, checked_arguments, read_call
from agentsup.fakes.telegram.rules import METHODS, Method
from agentsup.fakes.telegram.world import Json, World
from agentsup.kit.clock import Clock, SystemClock

PAGE: Final = Path(__file__).parent / "page"
_BIGGEST_BODY: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bot:
    """A registered bot."""

    bot_id: int
    token: str
    username: str


class FakeTelegram:
    """The server; ``url`` is what a client takes for https://api.telegram.org."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        limits: str = "",
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """``limits`` is count (default) or enforce; empty keeps what the folder remembers."""
        self._clock = clock or SystemClock()
        self._folder = folder
        self._seed = seed
        self._limits_mode = limits
        self._runner: web.AppRunner | None = None
        self._world: World | None = None
        self._limits = Limits()
        self._polls = Polls(self._clock)
        self.port = port

    @property
    def url(self) -> str:
        """Base of everything: bot methods, files, control plane and page."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def world(self) -> World:
        """The state, for a look inside; tests drive it through the control plane."""
        assert self._world is not None, "the fake is not running"
        return self._world

    def bot(
        self,
        token: str | None = None,
        *,
        username: str | None = None,
        name: str | None = None,
        can_read_all_group_messages: bool | None = None,
        has_topics_enabled: bool | None = None,
    ) -> Bot:
        """Register a bot; without a token it gets the next number and a made-up secret."""
        world = self.world
        if token is None:
            number = world.number("bot", 700_001)
            token = f"{number}:AAF{'x' * 20}{number:012d}"
        known = world.add_bot(
            token,
            username=username,
            first_name=name,
            can_read_all_group_messages=can_read_all_group_messages,
            has_topics_enabled=has_topics_enabled,
        )
        return Bot(known["id"], token, known["username"])

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the folder and listen."""
        # The state's number is part of the seed: a restarted fake does not draw the same ids again.
        world = World(
            self._folder,
            self._clock,
            lambda state: SeededEntropy(self._clock, self._seed * 1_000_003 + state),
        )
        self._world = world
        self._limits.mode = self._limits_mode or world.setting("limits", "count")
        app = web.Application(client_max_size=_BIGGEST_BODY)
        Control(world, self._limits).add_to(app.router)
        app.router.add_get("/file/bot{token}/{path:.+}", self._download)
        app.router.add_route("*", "/bot{token}/{method}", self._call)
        if (PAGE / "index.html").exists():
            app.router.add_get("/", self._index)
            app.router.add_static("/page/", PAGE)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Cut all connections; the folder keeps everything."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._world is not None:
            self._world.close()
            self._world = None

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    # -- bots --------------------------------------------------------------------------------------

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(PAGE / "index.html")

    async def _call(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["method"].lower()
        try:
            call = await read_call(request, name)
            bot = self._authorised(request.match_info["token"])
            method = METHODS.get(name)
            if method is None:
                raise refused("no method")
            self._limits.note(method.name)
            fault = faults.pick(self.world, bot, call, method.counts_as)
            if fault is not None:
                return await self._troubled(request, bot, method, call, fault)
            return _document(await self._result(bot, method, call))
        except Refused as error:
            return _refusal(error)

    def _authorised(self, token: str) -> Json:
        bot = self.world.bot_by_token(token)
        if bot is None or bot["revoked"]:
            raise refused("unauthorized")
        return bot

    async def _result(self, bot: Json, method: Method, call: Call) -> Any:
        """Check by the tables, count, and do it."""
        call.args, remarks = checked_arguments_noted(self.world, bot, method, call)
        for remark in remarks:
            self._violation(bot, method, remark)
        if method.name == "getUpdates":
            return await self._polls.poll(self.world, bot, call)
        self._count(bot, method, call)
        return HANDLERS[method.name.lower()](self.world, bot, call)

    def _count(self, bot: Json, method: Method, call: Call) -> None:
        now = self._clock.monotonic()
        labels = {"bot": str(bot["id"]), "chat": call.chat_id}
        self._limits.obey(**labels, counts_as=method.counts_as, now=now)
        media = call.args.get("media")
        retry_after_s = self._limits.check(
            **labels,
            is_group=call.chat_id.startswith("-"),
            counts_as=method.counts_as,
            weight=len(media) if isinstance(media, list) and media else 1,
            now=now,
        )
        if retry_after_s:
            raise flood(retry_after_s)

    def _violation(self, bot: Json, method: Method, what: str) -> None:
        number = self.world.number("violation")
        found = {"number": number, "bot": bot["id"], "method": method.name, "what": what}
        self.world.journal.put("violation", number, found)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        try:
            bot = self._authorised(request.match_info["token"])
        except Refused as error:
            return _refusal(error)
        path = files.linked(self.world, bot, request.match_info["path"])
        if path is None:
            return _refusal(Refused(404, "Not Found"))
        # Read at once: a FileResponse leaves its file open where the bot goes away as it opens it.
        content = await asyncio.to_thread(path.read_bytes)
        return web.Response(body=content, content_type="application/octet-stream")

    # -- trouble -----------------------------------------------------------------------------------

    async def _troubled(
        self, request: web.Request, bot: Json, method: Method, call: Call, fault: Fault
    ) -> web.StreamResponse:
        kind = fault.kind
        if kind in {"flood", "edit_penalty"}:
            named = "retry_after_now" if kind == "edit_penalty" else "retry_after"
            seconds = int(fault.number(named))
            now = self._clock.monotonic()
            where = (str(bot["id"]), call.chat_id, method.counts_as)
            self._limits.obey(*where, now)
            self._limits.pause(*where, seconds, now)
            raise flood(seconds)
        if kind == "error":
            raise Refused(int(fault.number("status")), str(fault.facts["description"]))
        if kind == "server_error":
            return web.Response(
                status=int(fault.number("status")),
                text=str(fault.facts["body"]),
                content_type="text/html",
            )
        if kind in {"hang", "cut_before"}:
            if kind == "hang":
                await faults.lasts(self.world, fault)
            return _cut(request)
        return await self._spoiled(request, await self._outcome(bot, method, call), fault)

    async def _outcome(self, bot: Json, method: Method, call: Call) -> web.Response:
        try:
            return _document(await self._result(bot, method, call))
        except Refused as error:
            return _refusal(error)

    async def _spoiled(
        self, request: web.Request, answer: web.Response, fault: Fault
    ) -> web.StreamResponse:
        """The request is done; its answer comes late, in drops, broken or not at all."""
        if fault.kind == "cut_after":
            return _cut(request)
        if fault.kind == "malformed":
            assert isinstance(answer.body, bytes)
            return web.Response(
                body=answer.body[: len(answer.body) // 2], content_type="application/json"
            )
        if fault.kind == "late":
            await faults.lasts(self.world, fault)
            return answer
        dripping = web.StreamResponse(status=answer.status)
        dripping.content_type = "application/json"
        assert isinstance(answer.body, bytes)
        dripping.content_length = len(answer.body)
        await dripping.prepare(request)
        size = max(1, int(fault.number("bytes")))
        for begin in range(0, len(answer.body), size):
            await dripping.write(answer.body[begin : begin + size])
            await self._clock.sleep(fault.number("seconds"))
        await dripping.write_eof()
        return dripping


def checked_arguments_noted(
    world: World, bot: Json, method: Method, call: Call
) -> tuple[Json, list[str]]:
    """Arguments by the table; what is wrong with them and with entities is remarked."""
    args, remarks = checked_arguments(method, call)
    for name in ("entities", "caption_entities"):
        if len(args.get(name) or ()) > 100:
            remarks.append("more than 100 entities; the rest is dropped")
    return args, remarks


def _document(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _refusal(error: Refused) -> web.Response:
    headers = {}
    if "retry_after" in error.parameters:
        headers["Retry-After"] = str(error.parameters["retry_after"])
    return web.Response(
        status=error.code,
        body=json.dumps(error.body()).encode(),
        content_type="application/json",
        headers=headers,
    )


def _cut(request: web.Request) -> web.StreamResponse:
    """Tear the connection down; the returned answer reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
