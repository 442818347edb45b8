"""The control plane: JSON over HTTP under /_fake, for tests and the chat page, never for bots.

A request that comes from a page of another site (Origin) or under another name than the loopback's
(Host) is refused, so that a stranger's page cannot play people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from aiohttp import web

from agentsup.fakes.telegram import faults, files, views
from agentsup.fakes.telegram.creating import CREATING
from agentsup.fakes.telegram.limits import MODES, Limits
from agentsup.fakes.telegram.people import ACTIONS
from agentsup.fakes.telegram.refusals import Refused, bad
from agentsup.fakes.telegram.requests import read_call
from agentsup.fakes.telegram.world import Json, World

_VIEWS: Final[dict[str, Callable[[World, Json], Any]]] = {
    "bots": views.bots,
    "users": views.users,
    "chats": views.chats,
    "messages": views.messages,
    "callback": views.callback,
    "files": views.files,
}
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_LONGEST_WAIT_S: Final = 60.0


class Control:
    """The routes under /_fake for one world."""

    def __init__(self, world: World, limits: Limits) -> None:
        """``limits`` may be switched and reported."""
        self._world = world
        self._limits = limits
        self._setters: dict[str, Callable[[Json], Any]] = {
            "bot": self._add_bot,
            "user": lambda body: world.add_user(**body),
            "group": self._add_group,
            "private": lambda body: world.private_chat(int(body["user"]), int(body["bot"])),
            "fault": self._add_fault,
            "clear_faults": self._clear_faults,
            "limits": self._set_limits,
            "inject": self._inject,
            "next_update_id": self._next_update_id,
            "advance": self._advance,
            "revoke": self._revoke,
            "clear_violations": self._clear_violations,
            "reset_report": lambda body: self._limits.reset(),
        }

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get("/_fake/wait", self._wait)
        router.add_get("/_fake/file/{unique}", self._file)
        router.add_get("/_fake/{what}", self._view)
        router.add_post("/_fake/{what}", self._act)

    # -- routes ------------------------------------------------------------------------------------

    async def _view(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._viewed)

    async def _viewed(self, request: web.Request) -> Any:
        what = request.match_info["what"]
        if what == "report":
            return self._limits.report()
        if what == "violations":
            return list(self._world.journal.all("violation"))
        if what == "faults":
            return list(self._world.journal.all("fault"))
        if what == "clock":
            return {"now_ms": self._world.now_ms(), "cursor": self._world.journal.cursor}
        if what not in _VIEWS:
            raise bad(f"there is no view {what!r}")
        return _VIEWS[what](self._world, dict(request.query))

    async def _act(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._acted)

    async def _acted(self, request: web.Request) -> Any:
        what = request.match_info["what"]
        call = await read_call(request, what)
        actions = ACTIONS | CREATING
        if what in actions:
            return actions[what](self._world, call.raw, call.files.get("file"))
        if what not in self._setters:
            raise bad(f"there is no action {what!r}")
        return self._setters[what](call.raw)

    async def _wait(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._waited)

    async def _waited(self, request: web.Request) -> Json:
        after = int(request.query.get("after", "0"))
        chat = request.query.get("chat")
        longest_s = min(_LONGEST_WAIT_S, float(request.query.get("timeout_s", "30")))
        found: list[Json] = []
        try:
            async with asyncio.timeout(longest_s):
                while not (found := views.changes(self._world, after, chat)):
                    await self._world.next_change()
        except TimeoutError:
            pass
        return {"cursor": self._world.journal.cursor, "changes": found}

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self._guard(request)
        record = self._world.journal.get("file", request.match_info["unique"])
        if record is None:
            return web.json_response({"ok": False, "description": "no such file"}, status=404)
        return web.Response(
            body=await asyncio.to_thread(files.file_path(self._world, record).read_bytes),
            headers={
                "Content-Type": record["mime"] if record["kind"] != "photo" else "image/jpeg",
                "Content-Disposition": f"inline; filename*=UTF-8''{quote(record['name'], safe='')}",
                "X-Content-Type-Options": "nosniff",
            },
        )

    async def _answer(
        self, request: web.Request, make: Callable[[web.Request], Any]
    ) -> web.Response:
        try:
            self._guard(request)
            return web.json_response({"ok": True, "result": await make(request)})
        except Refused as error:
            return web.json_response(error.body(), status=error.code)
        except (KeyError, TypeError, ValueError) as error:
            document = {"ok": False, "description": f"{error.__class__.__name__}: {error}"}
            return web.json_response(document, status=400)

    def _guard(self, request: web.Request) -> None:
        host = urlsplit(f"//{request.host}").hostname
        origin = request.headers.get("Origin")
        if host not in _LOOPBACK or (origin and urlsplit(origin).netloc != request.host):
            raise Refused(403, "Forbidden: the control plane is for this machine's own page only")

    # -- settings ----------------------------------------------------------------------------------

    def _bot(self, body: Json) -> Json:
        found = self._world.journal.get("bot", str(body.get("bot")))
        if found is None:
            raise bad(f"there is no bot {body.get('bot')!r}")
        return found

    def _add_bot(self, body: Json) -> Json:
        facts = dict(body)
        token = str(facts.pop("token"))
        return self._world.add_bot(token, **facts)

    def _add_group(self, body: Json) -> Json:
        kind = str(body.get("type", "group"))
        members = {str(one): "member" for one in body.get("members", [])}
        members |= {str(one): "administrator" for one in body.get("administrators", [])}
        for one in members:
            self._world.user(int(one))
        if body.get("is_forum") and kind != "supergroup":
            raise bad("only a supergroup can be a forum")
        return self._world.add_group(
            kind,
            str(body.get("title", "Group")),
            members,
            is_forum=bool(body.get("is_forum", False)),
        )

    def _add_fault(self, body: Json) -> Json:
        facts = dict(body)
        return {"fault_id": faults.add(self._world, str(facts.pop("kind", "")), **facts)}

    def _clear_faults(self, body: Json) -> Json:
        faults.remove(self._world, body.get("fault_id"))
        return {}

    def _set_limits(self, body: Json) -> Json:
        mode = str(body.get("mode", ""))
        if mode not in MODES:
            raise bad(f"limits are {' or '.join(MODES)}, not {mode!r}")
        self._limits.mode = mode
        self._world.set_setting("limits", mode)
        return {"mode": mode}

    def _inject(self, body: Json) -> Json:
        return self._world.queue_update(self._bot(body), dict(body["update"]))

    def _next_update_id(self, body: Json) -> Json:
        bot = self._bot(body)
        bot["next_update_id"] = int(body["value"])
        self._world.put("bot", bot["id"], bot)
        return {"next_update_id": bot["next_update_id"]}

    def _advance(self, body: Json) -> Json:
        offset_ms = int(self._world.setting("clock_offset_ms", 0))
        self._world.set_setting("clock_offset_ms", offset_ms + round(float(body["seconds"]) * 1000))
        return {"now_ms": self._world.now_ms()}

    def _revoke(self, body: Json) -> Json:
        bot = self._bot(body)
        bot["revoked"] = bool(body.get("revoked", True))
        self._world.put("bot", bot["id"], bot)
        self._world.ring(bot["id"])
        return {"revoked": bot["revoked"]}

    def _clear_violations(self, body: Json) -> Json:
        for found in self._world.journal.all("violation"):
            self._world.journal.drop("violation", found["number"])
        return {}
