"""What a person does in rooms while daemon and homeserver are killed, and what must come of it.

Texts, streams, files both ways, questions and their presses, commands and corrections, each named
by its room and number, so that the judge can say of every one what became of it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.live.matrix_cluster import MatrixCluster
from tests.support.matrix_view import Seen

CHUNKS = [f"{word} of a longer answer, " for word in ("first", "second", "third", "fourth")]
RULES: list[dict[str, Any]] = [
    {"match": r"say (\S+)", "steps": [{"say": "said $1"}]},
    {"match": r"tell (\S+)", "steps": [{"stream": {"chunks": [*CHUNKS, "said $1"], "every": 0.4}}]},
    {
        "match": r"keep (\S+)\n\[file: (\S+)[^\]]*\]",
        "steps": [{"say": "said $1"}, {"file": "$2"}],
    },
    {
        "match": r"ask (\S+)",
        "steps": [
            {"question": {"text": "go on with $1?", "options": ["yes", "no"]}},
            {"say": "asked $1, got $result"},
        ],
    },
    {"match": r"first (\S+)", "steps": [{"say": "was $1"}]},
    {"match": r"\(edited\) then (\S+)", "steps": [{"say": "after all $1"}]},
    {"match": r"then (\S+)", "steps": [{"say": "became $1"}]},
]
KINDS = ("tell", "say", "keep", "say", "ask", "tell", "say", "command", "say", "say", "ask", "edit")
"""What the texts of a room are, in turn."""
_TURN = 6
"""There is a question in so many texts; each is answered in another way than the one before."""
_ANSWERED_S = 5.0
_ASKED = re.compile(r"go on with (\S+)\?")
_ENDED = re.compile(r"go on with (\S+)\?\n\n✔ .+: (yes|no)")
_COMMAND = "/cancel"
RESTARTED = f"I was restarted while !{_COMMAND[1:]} ran"


def kind_of(index: int) -> str:
    """What a person does with that number."""
    return KINDS[index % len(KINDS)]


def data_of(name: str) -> bytes:
    """The file that is sent with that name."""
    return f"the file of {name} ".encode() * 200


def choice_of(name: str) -> str:
    """How a question is answered."""
    turn = int(name.partition("-")[2]) // _TURN
    return "yes" if (turn + turn // 4) % 2 else "no"


async def act(
    town: MatrixCluster, number: int, index: int, chance: random.Random, *, is_calm: bool = False
) -> None:
    """One thing that a person does in a room; where it ``is_calm``, nobody dies any more."""
    person, room, name = town.person, town.rooms[number], f"{number}-{index}"
    match kind_of(index):
        case "keep":
            await person.send_file(room, data_of(name), name=f"{name}.bin", text=f"keep {name}")
        case "command":
            await person.say(room, f"!{_COMMAND[1:]} {name}")
        case "edit":
            said = await person.say(room, f"first {name}")
            if is_calm or chance.random() < 0.7:  # so late that it may be answered
                patience_s = 60.0 if is_calm else _ANSWERED_S
                with suppress(TimeoutError):
                    await person.wait_text(room, f"was {name}", patience_s, by=town.bot)
            await person.edit(room, said, f"then {name}")
        case verb:
            await person.say(room, f"{verb} {name}")


class Presser:
    """Answers each question once, as soon as it is seen: by reaction, by number or by word."""

    def __init__(self, town: MatrixCluster) -> None:
        self._town = town
        self._answered: set[str] = set()

    async def run(self) -> None:
        """Lasts until it is cancelled."""
        while True:
            await self._town.person.sync(timeout_ms=1_000)
            for room in self._town.rooms:
                for seen in self._town.person.messages(room, by=self._town.bot):
                    asked = _ASKED.match(seen.text)
                    if asked and seen.event_id not in self._answered:
                        self._answered.add(seen.event_id)
                        await self._answer(room, seen, asked[1])

    async def _answer(self, room: str, seen: Seen, name: str) -> None:
        person, choice = self._town.person, choice_of(name)
        match int(name.partition("-")[2]) // _TURN % 4:
            case 0:
                await person.react(room, seen.event_id, "👍" if choice == "yes" else "👎")
            case 1:
                number = "1" if choice == "yes" else "2"
                await person.react(room, seen.event_id, f"{number}\ufe0f\u20e3")
            case 2:
                await person.say(room, "1" if choice == "yes" else "2", reply_to=seen.event_id)
            case _:
                await person.say(room, choice, reply_to=seen.event_id)


@dataclass(frozen=True, slots=True)
class Room:
    """What a person sees of the bot in a room at the end."""

    texts: tuple[str, ...]
    notices: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


async def room_of(town: MatrixCluster, number: int) -> Room:
    """As the person sees it now."""
    person = town.person
    found = person.messages(town.rooms[number], by=town.bot)
    files = [
        (str(one.content["filename"]), await person.download(str(one.content["url"])))
        for one in found
        if one.kind == "m.file"
    ]
    return Room(
        tuple(one.text for one in found if one.kind == "m.text"),
        tuple(one.text for one in found if one.kind == "m.notice"),
        tuple(files),
    )


def answered(town: MatrixCluster, number: int, upto: int) -> bool:
    """Whether everything that must come has come; the judge looks closer."""
    found = town.person.messages(town.rooms[number], by=town.bot)
    texts = [one.text for one in found if one.kind == "m.text"]
    files = sum(one.kind == "m.file" for one in found)
    kinds = Counter(kind_of(index) for index in range(upto))
    ends = sum(bool(_ENDED.fullmatch(text)) for text in texts)
    said = sum("said " in text for text in texts)
    return (
        said >= kinds["say"] + kinds["tell"] + kinds["keep"]
        and files >= kinds["keep"]
        and ends >= kinds["ask"]
        and sum(text.startswith("asked ") for text in texts) >= kinds["ask"]
        and sum(text.startswith(("became ", "after all ")) for text in texts) >= kinds["edit"]
        and len(_replies(one.text for one in found if one.kind == "m.notice")) >= kinds["command"]
    )


def _replies(notices: Any) -> list[str]:
    """What was said about commands."""
    return [text for text in notices if re.search(r"\d+-\d+", text) or RESTARTED in text]


def judge(rooms: Sequence[Room], upto: int) -> Counter[str]:
    """Each thing of each room was answered once, whole and in order, and nothing else was said;
    how many of each kind."""
    total: Counter[str] = Counter()
    for number, room in enumerate(rooms):
        left = Counter(room.texts)
        in_order: list[str] = []
        for index in range(upto):
            name, kind = f"{number}-{index}", kind_of(index)
            total[kind] += 1
            match kind:
                case "command":
                    continue
                case "ask":
                    choice = choice_of(name)
                    _take(left, f"asked {name}, got {choice}")
                    ends = [t for t in left if t.startswith(f"go on with {name}?")]
                    assert len(ends) == 1, f"the question {name} stands there {len(ends)} times"
                    end = _ENDED.fullmatch(ends[0])
                    assert end, f"the question {name} does not say how it ended: {ends[0]!r}"
                    assert end[2] == choice, f"the question {name} was answered with {end[2]}"
                    _take(left, ends[0])
                case "edit" if left[f"was {name}"]:
                    in_order.append(_take(left, f"was {name}"))
                    _take(left, f"after all {name}")
                    total["corrected"] += 1
                case "edit":
                    in_order.append(_take(left, f"became {name}"))
                case "tell":
                    in_order.append(_take(left, "".join(CHUNKS) + f"said {name}"))
                case _:
                    in_order.append(_take(left, f"said {name}"))
        others = list(left.elements())
        assert not others, f"half an answer, or one to nothing, in room {number}: {others}"
        shown = [text for text in room.texts if text in set(in_order)]
        assert shown == in_order, f"out of order in room {number}"
        _judge_files(number, room, upto)
        total["restarted"] += _judge_commands(number, room, upto)
    return total


def _take(left: Counter[str], text: str) -> str:
    assert left[text] > 0, f"lost: {text}"
    assert left[text] == 1, f"answered {left[text]} times: {text}"
    del left[text]
    return text


def _judge_files(number: int, room: Room, upto: int) -> None:
    wanted = [f"{number}-{index}" for index in range(upto) if kind_of(index) == "keep"]
    for name in wanted:
        # A kill between keeping a file and taking its message leaves one behind, and the one that
        # is fetched again is called name-2.
        called = re.compile(rf"\d{{4}}-\d\d-\d\d-{name}(-\d+)?\.bin")
        found = [data for file, data in room.files if called.fullmatch(file)]
        assert found, f"lost: the file {name}"
        assert len(found) == 1, f"sent {len(found)} times: the file {name}"
        assert found[0] == data_of(name), f"another file than was sent: {name}"
    assert len(room.files) == len(wanted), f"files to nothing in room {number}: {room.files}"


def _judge_commands(number: int, room: Room, upto: int) -> int:
    """A command is answered once, or it is said once that it was cut off; how many were."""
    replies = Counter(_replies(room.notices))
    wanted = [f"{number}-{index}" for index in range(upto) if kind_of(index) == "command"]
    restarted = sum(count for text, count in replies.items() if RESTARTED in text)
    missing = 0
    for name in wanted:
        times = sum(
            count for text, count in replies.items() if re.search(rf"(?<!\d){name}(?!\d)", text)
        )
        assert times <= 1, f"answered {times} times: the command {name}"
        missing += not times
    assert missing == restarted, f"{missing} commands without an answer, {restarted} cut off"
    return restarted
