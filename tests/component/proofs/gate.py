"""P7: nobody gets in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentsup.api.http import gate
from agentsup.api.http.access import Access
from agentsup.api.http.route import ApiRoute
from agentsup.api.routes import interagent
from agentsup.api.server.listener import ROUTES
from agentsup.daemon.assembly import agents
from agentsup.daemon.runtime import reconcile
from agentsup.daemon.runtime.tokens import TokenRegistry
from agentsup.engines.scripted.engine import ScriptedEngine, ScriptedSession
from agentsup.kit.clock import Clock
from agentsup.mailbox.mail import BusRequest, DirectoryEntry, InterAgentBus
from agentsup.model.control import TokenIdentity
from agentsup.model.engine import EngineHost, EngineSpec
from agentsup.model.principal import OPERATOR
from tests.component.proofs.house import OPERATOR_TOKEN, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P7")
HARMLESS = {
    "name": "nobody",
    "id": "nothing",
    "outbox_id": "0",
    "number": "0",
    "language": "de",
    "token": "nothing",
}
SECRET = "sk-this-is-a-very-secret-key"


async def every_credential_on_every_route(home: Path) -> None:
    """Without a token, with a wrong one, an ended one, an agent's; from a foreign page or name."""
    async with (
        ProofDaemon(home, [agent("main"), agent("ann")], is_real=True) as house,
        aiohttp.ClientSession(house.daemon.api.url) as client,
    ):
        ann = house.unit("ann").agent_id
        own = house.tokens.issue_run(ann, "ann", "")
        ended = house.tokens.issue_run(ann, "ann", "msg_1")
        house.tokens.revoke(ended)

        async def status(route: ApiRoute, token: str | None, **headers: str) -> int:
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            path = route.path.format(**HARMLESS)
            async with client.request(route.method, path, headers=headers) as response:
                return response.status

        for route in ROUTES:
            what = f"{route.method} {route.path}"
            for name, token in (("no", None), ("a wrong", "wrong"), ("an ended", ended)):
                got = await status(route, token)
                if route.access is not Access.OPEN:
                    claim.holds(got == 401, f"{what} answered {name} token with {got}")
            for name, value in (
                ("Origin", "http://evil.example"),
                ("Origin", "null"),
                ("Host", "evil.example"),
            ):
                got = await status(route, OPERATOR_TOKEN, **{name: value})
                claim.holds(got == 403, f"{what} answered {name}: {value} with {got}")
            if route.access not in (Access.OPEN, Access.ANY, Access.WORK, Access.RUN):
                got = await status(route, own)
                claim.holds(got == 403, f"{what} answered an agent's token with {got}")


async def the_sender_is_the_token(home: Path) -> None:
    """An agent's token sends as somebody else, by the body."""
    async with (
        ProofDaemon(home, [agent("main"), agent("ann"), agent("bob")], is_real=True) as house,
        aiohttp.ClientSession(house.daemon.api.url) as client,
    ):
        token = house.tokens.issue_run(house.unit("ann").agent_id, "ann", "")
        for path in ("/interagent/send_async", "/interagent/send"):
            async with client.post(
                path,
                json={"to": "bob", "message": "pay him", "from": "main"},
                headers={"Authorization": f"Bearer {token}"},
            ) as response:
                status = response.status
            senders = await house.sql("SELECT principal FROM messages")
            names = [json.loads(row[0])["name"] for row in senders]
            claim.holds("main" not in names, "a message of ann's is stored as main's")
            claim.holds(status == 403, f"a false sender was answered with {status}")


class Spying(ScriptedEngine):
    """Keeps the environments that engines would start their programs with."""

    def __init__(self, clock: Clock, seen: list[Mapping[str, str]]) -> None:
        super().__init__(clock)
        self._seen = seen

    async def open(self, spec: EngineSpec, host: EngineHost) -> ScriptedSession:
        self._seen.append(spec.env)
        return await super().open(spec, host)


async def engines_see_an_allowed_environment(home: Path) -> None:
    """The daemon's environment holds keys; an engine gets what is listed and its own token."""
    seen: list[Mapping[str, str]] = []
    environ = {"PATH": "/usr/bin", "LANG": "C", "OPENAI_API_KEY": SECRET, "AWS_SECRET": SECRET}
    house = ProofDaemon(home, [agent("main")], environ=environ)
    house.use_engine("scripted", lambda: Spying(house.clock, seen))
    async with house:
        await house.say("main", "hello")
        await claim.comes(lambda: seen, 10, "the engine was not opened")
        (env,) = seen
        claim.holds(env["PATH"] == "/usr/bin", "what is listed is missing")
        claim.holds(SECRET not in env.values(), f"the engine was handed {sorted(env)}")
        claim.holds(env["AGENTSUP_TOKEN"] != OPERATOR_TOKEN, "the engine got the operator's token")
        await claim.comes(lambda: house.channel.sent, 10, "no answer")
        claim.holds(
            house.tokens.identify(env["AGENTSUP_TOKEN"]) is None, "its token outlives the turn"
        )


async def secrets_are_never_shown(home: Path) -> None:
    """A secret that an edit brings is out of the log at once, and out of complaints."""
    environ = {"PATH": "/usr/bin", "KEY": SECRET}
    async with ProofDaemon(home, [agent("main")], environ=environ) as house:
        line = f"calling with {SECRET}"
        claim.holds(house.redactor.text(line) == line, "redacted before it was known")
        keyed = agent("ann", engine_options={"rules": [], "api_key": "env:KEY"})
        await house.edit([agent("main"), keyed])
        claim.holds(SECRET not in house.redactor.text(line), "the log would show a secret")
        literal = "123456:AAliteral-token-of-a-bot"
        broken = [agent("main"), agent("bob", telegram_token=literal, telegram_tokn=literal)]
        await house.edit(broken)
        await claim.comes(lambda: house.heard("not applied"), 10, "the complaint is not told")
        shown = [*house.channel.texts(), house.daemon.reconciler.config_error]
        claim.holds(not any(literal in text for text in shown), "a complaint shows a token")


# -- removals --------------------------------------------------------------------------------------


def _always_operator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "shown_token", lambda path, headers: "any")
    patch.setattr(TokenRegistry, "identify", lambda self, token: TokenIdentity(OPERATOR))


def _sender_from_the_body(patch: pytest.MonkeyPatch) -> None:
    original = InterAgentBus.sender_of

    def sender(
        self: InterAgentBus, request: BusRequest, caller: Any, asker: Any
    ) -> DirectoryEntry | None:
        if request.sender:
            return self._directory.lookup(request.sender)
        return original(self, request, caller, asker)

    patch.setattr(interagent, "checked_sender", lambda given, caller: given or "")
    patch.setattr(InterAgentBus, "sender_of", sender)


def _whole_environment(patch: pytest.MonkeyPatch) -> None:
    def whole(*args: Any, source: Mapping[str, str] | None = None, **more: Any) -> dict[str, str]:
        return dict(source or {})

    patch.setattr(agents, "child_env", whole)


def _redact_what_was_known_at_the_start(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: object, **more: object) -> None:
        return None

    patch.setattr(reconcile, "redact_secrets", nothing)


PROOFS = (
    Proof(
        "every credential on every route",
        "P7",
        every_credential_on_every_route,
        Removal("everybody is the operator", _always_operator),
        is_real=True,
    ),
    Proof(
        "the sender is the token",
        "P7",
        the_sender_is_the_token,
        Removal("the sender from the body", _sender_from_the_body),
        is_real=True,
    ),
    Proof(
        "engines see an allowed environment",
        "P7",
        engines_see_an_allowed_environment,
        Removal("the whole environment handed on", _whole_environment),
    ),
    Proof(
        "secrets are never shown",
        "P7",
        secrets_are_never_shown,
        Removal("only secrets of the start redacted", _redact_what_was_known_at_the_start),
    ),
)
