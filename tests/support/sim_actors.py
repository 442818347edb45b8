"""The people, programs and accidents of one simulated life, drawn from the seed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random

from agentsup.mailbox.mail import BusRequest
from agentsup.model.errors import (
    AgentsupError,
    Conflict,
    EngineFailed,
    IllegalTransition,
    Refused,
    StoreUnavailable,
    TimedOut,
)
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, NewMessage, Priority, text_parts
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.support.sim_bias import PLAIN, HistoryBias
from tests.support.sim_node import AGENTS, Node, agent_id
from tests.support.sim_script import answer_to, draw_script

BOB = Principal(PrincipalKind.PERSON, "bob", "Bob")
PLACES = (("console", "c1"), ("console", "c2"), ("blind", "b1"))

Act = Callable[[Node], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody does ``act`` at ``at_s`` seconds of a life."""

    name: str
    at_s: float
    act: Act

    async def run(self, node: Node) -> None:
        """Wait and act; refusals are part of life, broken answers are not."""
        await node.world.clock.sleep(self.at_s)
        try:
            await self.act(node)
        except (Refused, EngineFailed, TimedOut, StoreUnavailable, IllegalTransition):
            return


class Actors:
    """Draws actors; keeps what may be repeated in a later life."""

    def __init__(self, rng: Random, leaning: HistoryBias = PLAIN) -> None:
        self._rng = rng
        self._leaning = leaning
        self._tokens = [0]
        self._repeatable: list[Act] = []

    def draw(self, count: int, within_s: float) -> list[Actor]:
        """``count`` actors within the first ``within_s`` seconds of a life."""
        rng, kinds = self._rng, self._kinds()
        wanted = self._leaning.acts
        weights = [wanted.get(name, weight) for name, (weight, _) in kinds.items()]
        names = rng.choices(list(kinds), weights, k=count)
        return [Actor(name, rng.uniform(0, within_s), kinds[name][1]()) for name in names]

    def _kinds(self) -> dict[str, tuple[int, Callable[[], Act]]]:
        return {
            "chat": (40, self._chat),
            "send": (12, self._send),
            "send_async": (8, self._send_async),
            "repeat": (8, self._repeat),
            "stop": (9, self._stop),
            "interrupt": (4, self._interrupt),
            "cancel": (5, self._cancel),
            "restart": (7, self._restart),
            "jump": (5, self._jump),
            "dead": (3, self._dead),
        }

    # -- in ----------------------------------------------------------------------------------------

    def _chat(self) -> Act:
        rng = self._rng
        name = rng.choice(AGENTS)
        channel, conversation = rng.choice(PLACES)
        script = draw_script(rng, self._tokens, AGENTS, self._leaning)
        expires = rng.random() < 0.1
        new = NewMessage(
            agent_id=AgentId(agent_id(name)),
            session_key=f"chat:{channel}:{conversation}",
            parts=text_parts(script.text()),
            principal=BOB,
            priority=rng.choice(tuple(Priority)),
            deliver_to=DeliverTo(
                "chat", agent_id=agent_id(name), channel=channel, conversation=conversation
            ),
            source=f"{channel}:{agent_id(name)}:{conversation}",
            external_id=script.token,
            new_session=rng.random() < 0.05,
        )

        async def act(node: Node) -> None:
            expires_at = node.world.clock.now_ms() + 5_000 if expires else None
            accepted = await node.mailbox.queue.accept(replace(new, expires_at=expires_at))
            node.world.accept(accepted.message_id, "chat", f"{new.source}:{new.external_id}")
            if script.late:
                # Rebuilt in the midst of a turn that won't go: the next instance takes it over.
                await node.world.clock.sleep(node.world.rng.uniform(0.1, 2))
                await _rebuild(node, name)

        return self._maybe_twice(act)

    def _send(self) -> Act:
        rng = self._rng
        script = draw_script(rng, self._tokens, AGENTS, self._leaning)
        request = BusRequest(
            to=rng.choice(AGENTS),
            text=script.text(),
            thread_id=rng.choice(("", "", "thread")),
            idempotency_key=script.token,
        )
        timeout_s = rng.choice((3600.0, 3600.0, 1.0))

        async def act(node: Node) -> None:
            try:
                reply = await node.bus.send(request, caller=OPERATOR, timeout_s=timeout_s)
            except TimedOut as error:
                node.world.accept(error.facts["message_id"], "send", request.idempotency_key)
                return
            node.world.accept(reply.message_id, "send", request.idempotency_key)
            if reply.text not in {answer_to(script.token), "leaving", "late"}:
                node.world.fail("own-answer", f"asked {script.token}, got {reply.text!r}")

        return self._maybe_twice(act)

    def _send_async(self) -> Act:
        rng = self._rng
        script = draw_script(rng, self._tokens, AGENTS, self._leaning)
        sender, to = rng.sample(AGENTS, 2)
        caller = rng.choice((OPERATOR, Principal(PrincipalKind.AGENT, agent_id(sender), sender)))
        request = BusRequest(to=to, text=script.text(), idempotency_key=script.token)

        async def act(node: Node) -> None:
            accepted = await node.bus.send_async(request, caller=caller)
            node.world.accept(accepted.message_id, "send_async", f"{caller}:{script.token}")

        return self._maybe_twice(act)

    def _maybe_twice(self, act: Act) -> Act:
        self._repeatable.append(act)
        return act

    def _repeat(self) -> Act:
        """The same input once more: a platform's redelivery, a client's retry."""
        return self._rng.choice(self._repeatable) if self._repeatable else self._chat()

    # -- steering ----------------------------------------------------------------------------------

    def _stop(self) -> Act:
        which, pick = self._rng.random(), self._rng.random()
        name = self._rng.choice(AGENTS)

        async def act(node: Node) -> None:
            world = node.world
            scope, where = "all", "1"
            if which > 0.6:
                scope, where = f"agent:{agent_id(name)}", f"agent_id = '{agent_id(name)}'"
            elif which > 0.25:
                rows = world.sql("SELECT session_id FROM messages GROUP BY 1 ORDER BY 1")
                if rows:
                    session = rows[int(pick * len(rows))][0]
                    scope, where = f"session:{session}", f"session_id = '{session}'"
            before = world.sql(f"SELECT COALESCE(MAX(seq), 0) FROM messages WHERE {where}")[0][0]
            report = await node.stopper.stop(scope, BOB)
            if not report.durable:
                return
            epoch = world.sql("SELECT counter FROM epochs WHERE scope = ?", scope)
            world.epochs[scope] = epoch[0][0] if epoch else 1
            # What a person has requeued since is new work, however soon after the stop.
            for row in world.sql(
                "SELECT message_id, state, error_code FROM messages"
                f" WHERE seq <= {before} AND {where} AND message_id NOT IN"
                " (SELECT message_id FROM events WHERE data ->> 'code' = 'requeued' AND seq >"
                " (SELECT MAX(seq) FROM events WHERE type = 'stop.applied'"
                " AND data ->> 'scope' = ?))",
                scope,
            ):
                if row["state"] in {"queued", "leased", "parked"}:
                    world.fail("stopped-means-stopped", f"{row[0]} is {row[1]} after {scope}")
                elif row["error_code"] == "stopped":
                    world.end(row["message_id"], f"the stop of {scope}")

        return act

    def _interrupt(self) -> Act:
        pick = self._rng.random()

        async def act(node: Node) -> None:
            held = node.world.sql(
                "SELECT session_id FROM messages WHERE state IN ('leased', 'parked') ORDER BY seq"
            )
            if held:
                session = held[int(pick * len(held))][0]
                await node.stopper.interrupt(session, BOB)
                _note_cancelled(node, f"session_id = '{session}'")

        return act

    def _cancel(self) -> Act:
        pick = self._rng.random()

        async def act(node: Node) -> None:
            rows = node.world.sql(
                "SELECT message_id FROM messages WHERE state IN ('queued', 'leased', 'parked')"
            )
            if rows:
                message_id = rows[int(pick * len(rows))][0]
                await node.mailbox.control.cancel(message_id, BOB)
                await node.stopper.cancel_turns((message_id,))
                _note_cancelled(node, f"message_id = '{message_id}'")

        return act

    def _restart(self) -> Act:
        name = self._rng.choice(AGENTS)

        async def act(node: Node) -> None:
            await _rebuild(node, name)

        return act

    def _jump(self) -> Act:
        seconds = self._rng.choice((-120, -30, -1, 1, 35, 300, 1200))

        async def act(node: Node) -> None:
            node.world.clock.jump_ms(seconds * 1000)

        return act

    def _dead(self) -> Act:
        pick = self._rng.random()

        async def act(node: Node) -> None:
            rows = await node.mailbox.failed.list()
            if rows:
                message_id = rows[int(pick * len(rows))].message_id
                if pick < 0.4:
                    await node.mailbox.failed.requeue(message_id, BOB)
                elif pick < 0.7:
                    accepted = await node.mailbox.failed.replay(message_id, BOB)
                    node.world.accept(accepted.message_id, "replay")
                else:
                    await node.mailbox.failed.drop(message_id, BOB)

        return act


async def _rebuild(node: Node, name: str) -> None:
    unit = node.fleet.get(agent_id(name))
    if unit is not None:
        await unit.child.restart()


def _note_cancelled(node: Node, where: str) -> None:
    for row in node.world.sql(
        f"SELECT message_id FROM messages WHERE error_code = 'cancelled' AND {where}"
    ):
        node.world.end(row[0], "a cancel")


# -- answers ---------------------------------------------------------------------------------------


async def press(node: Node, question_id: str, option: str) -> None:
    """A person presses a button, perhaps an old one."""
    world = node.world
    row = world.sql("SELECT * FROM questions WHERE question_id = ?", question_id)[0]
    if option == "do it again" and row["state"] == "open":
        name = row["text"].partition("“")[2].partition("”")[0]
        world.again[row["message_id"], name] += 1
    try:
        await node.mailbox.questions.answer(question_id, option, BOB)
    except Conflict:
        return
    world.answers[question_id] += 1
    if world.answers[question_id] > 1:
        world.fail("answered-once", f"{question_id} took two answers")


async def answer_all(node: Node) -> None:
    """Press a button of every open question."""
    world = node.world
    for row in world.sql("SELECT question_id, options FROM questions WHERE state = 'open'"):
        options = world.questions.get(row["question_id"]) or tuple(_options(row["options"]))
        try:
            await press(node, row["question_id"], world.rng.choice(options))
        except AgentsupError:
            continue


def _options(text: str) -> list[str]:
    found: list[str] = json.loads(text)
    return found
