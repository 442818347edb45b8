"""Models and servers that answer oddly: the engine makes an ordinary turn of it, however the deltas
of the answer are cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from agentsup.engines.failures import FAILURES
from agentsup.engines.llm.toolset import accepted
from agentsup.engines.thoughts import ThoughtSplitter, answer_of
from agentsup.model.engine import EngineEvent, EngineNotice, HistoryItem, Usage
from tests.contract.engines.conftest import LlmHarness, collect, done, spoken
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import Call, Reply

SECRET = "SECRET"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
THOUGHTS = {
    "plain": ("<think>SECRET</think>Four.", "Four."),
    "lines": ("<think>\nSECRET\n</think>\n\nFour.", "Four."),
    "opened by the template": ("SECRET\n</think>Four.", "Four."),
    "opened by the template, glued": ("SECRET</think>Four.", "Four."),
    "opened by the template, code": ("SECRET ```py\nx\n</think>\n\nFour.", "Four."),
    "another word": ("<thinking>SECRET</thinking>Four.", "Four."),
    "a word with a prefix": ("<seed:think>SECRET</seed:think>Four.", "Four."),
    "large letters": ("<THINK>SECRET</Think >Four.", "Four."),
    "an attribute": ("<reasoning effort='3'>SECRET</reasoning>\nFour.", "Four."),
    "brackets": ("[THINK]SECRET[/THINK]Four.", "Four."),
    "triangles": ("◁think▷SECRET◁/think▷Four.", "Four."),
    "special tokens": ("<|begin_of_thought|>SECRET<|end_of_thought|>Four.", "Four."),
    "channels": (
        f"<|channel|>analysis<|message|>SECRET<|end|>{FINAL}Four.",
        "Four.",
    ),
    "nested": ("<think>a<think>SECRET</think>SECRET</think>Four.", "Four."),
    "a tag in a thought": ("<think>`</think>` SECRET</think>Four.", "Four."),
    "after a sentence": ("Sure.<think>SECRET</think>Four.", "Sure.Four."),
    "after code": ("```\na\n```\n<think>SECRET</think>Four.", "```\na\n```\nFour."),
    "twice": ("<think>SECRET</think>Fo<think>SECRET</think>ur.", "Four."),
    "after a lonely backtick": ("a `b\n\n<think>SECRET</think>Four.", "a `b\n\nFour."),
}
TEXTS = (
    "Write `<think>`:\n```\n<think>\nx\n</think>\n```\nDone.",
    "~~~\n```\n<think>\n~~~\nEnd",
    "A ``x ` <think>`` B",
    'It said "</think>" there.',
    "The <think> tag is odd.",
    "a < b and c > d [x] <b>bold</b> <t",
    "```py\nx = 1",
    "Half a tag: </thi",
    "So:\n<item><reason>late</reason><thought>x</thought></item>",
    "It ends with </reason> here.",
)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """``text`` cut at these places."""
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(at)]


CUTS = st.lists(st.integers(0, 400), max_size=12)


def split(text: str, cuts: list[int], *, holds: bool) -> tuple[str, str, str]:
    """What is shown, the answer, and the thoughts."""
    splitter = ThoughtSplitter(holds=holds)
    told = [splitter.feed(piece) for piece in pieces(text, cuts)]
    shown = "".join(text for text, _ in told) + splitter.end()
    return shown, splitter.answer, "".join(thought for _, thought in told)


@given(st.sampled_from(sorted(THOUGHTS)), CUTS)
def test_a_thought_is_told_apart_wherever_deltas_end(name: str, cuts: list[int]) -> None:
    text, answer = THOUGHTS[name]
    shown, found, _ = split(text, cuts, holds=True)
    assert (shown, found) == (answer, answer)
    assert answer_of(text) == answer
    if "template" not in name:
        assert split(text, cuts, holds=False)[0] == answer


@given(st.sampled_from(TEXTS), CUTS, st.booleans())
def test_a_text_about_tags_stays_as_it_is(text: str, cuts: list[int], holds: bool) -> None:
    assert split(text, cuts, holds=holds)[:2] == (text, text)


WILD = st.text(st.sampled_from("<>/`~[]\n think|\"'ab"), max_size=80)


@given(WILD, CUTS, st.booleans())
@example("```\n<think>", [3], True)
def test_the_cuts_change_nothing(text: str, cuts: list[int], holds: bool) -> None:
    whole = split(text, [], holds=holds)
    assert split(text, cuts, holds=holds)[1] == whole[1]
    shown, answer, _ = split(text, cuts, holds=True)
    assert shown == answer


@pytest.fixture(autouse=True)
def unknown(request: pytest.FixtureRequest) -> None:
    """Let the engine find out about the template of its model."""
    if "llm" in request.fixturenames:
        request.getfixturevalue("llm").options.clear()


# -- through the engine --------------------------------------------------------------------------------


async def turn(rig: LlmHarness, *replies: Reply, **more: Any) -> list[EngineEvent]:
    """The events of one turn in which the model answers so."""
    host = more.pop("host", None) or MemoryHost()
    given = more.pop("segment", None) or segment(**more)
    rig._replies.extend(replies)
    session = await rig.open(host)
    events = await collect(session, given)
    await session.close()
    return events


def state_of(events: list[EngineEvent]) -> str:
    """What the next turn of the session is given."""
    return (done(events).engine_state or b"").decode()


@pytest.mark.parametrize("name", sorted(THOUGHTS))
async def test_thoughts_are_no_part_of_an_answer_or_a_history(llm: LlmHarness, name: str) -> None:
    text, answer = THOUGHTS[name]
    for cuts in ([], [1, 3, 9, 14], list(range(200))):
        events = await turn(llm, Reply(tuple(pieces(text, cuts))))
        assert (done(events).outcome, done(events).text) == ("ok", answer)
        assert spoken(events) == answer
        assert SECRET not in state_of(events)


async def test_a_thought_before_a_call_is_none_of_the_answer(llm: LlmHarness) -> None:
    async def fine(args: dict[str, Any]) -> str:
        return "fine"

    first = Reply(("SECRET</thi", "nk>"), calls=(Call("fine"),))
    events = await turn(llm, first, Reply("SECRET</think>Done."), host=MemoryHost({"fine": fine}))
    assert (done(events).text, spoken(events)) == ("Done.", "Done.")
    assert SECRET not in state_of(events)


async def test_a_model_that_is_known_is_shown_as_it_writes(llm: LlmHarness) -> None:
    await turn(llm, Reply("Hello."))
    events = await turn(llm, Reply(("Hello ", "again.")))
    assert [event.text for event in events if hasattr(event, "text")][:2] == ["Hello ", "again."]


@pytest.mark.parametrize("text", ["", "\n\n  \n", "<think>only SECRET</think>", "<think>SECRET"])
async def test_an_answer_without_a_word_is_asked_for_once_more(llm: LlmHarness, text: str) -> None:
    events = await turn(llm, Reply(text), Reply("Here."))
    assert (done(events).outcome, done(events).text) == ("ok", "Here.")
    again = await turn(llm, Reply(text), Reply(text))
    assert done(again).code == "empty_answer"
    for each in (events, again):
        assert SECRET not in spoken(each)
        end = done(each)
        if end.engine_state is not None:
            after = await turn(llm, Reply("Yes."), engine_state=end.engine_state)
            assert done(after).text == "Yes."


async def test_a_history_of_an_old_state_is_corrected(llm: LlmHarness) -> None:
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart("one")]),
        ModelResponse([TextPart("\n\n  \n")]),
        ModelRequest([UserPromptPart("two")]),
        ModelResponse([TextPart("<think>SECRET</think>Two."), ToolCallPart("gone", {}, "c1")]),
        ModelRequest([UserPromptPart("three")]),
        ModelResponse([TextPart("")]),
    ]
    raw = ModelMessagesTypeAdapter.dump_json(messages).decode()
    state = f'{{"engine":"llm","v":1,"messages":{raw}}}'.encode()
    events = await turn(llm, Reply("Yes."), engine_state=state)
    assert done(events).text == "Yes."
    assert SECRET not in json.dumps(llm.server.asked[-1].body)
    assert not llm.server.violations


async def test_a_transcript_with_blanks_is_taken(llm: LlmHarness) -> None:
    history = (HistoryItem("user", "one"), HistoryItem("assistant", " \n"))
    assert done(await turn(llm, Reply("Yes."), history=history)).text == "Yes."


async def test_a_refused_history_is_tried_from_the_transcript(llm: LlmHarness) -> None:
    first = done(await turn(llm, Reply("One.")))
    given = segment(
        "two",
        engine_state=first.engine_state,
        history=(HistoryItem("user", "one"), HistoryItem("assistant", "One, short.")),
    )
    events = await turn(llm, Reply(status=400), Reply("Two."), segment=given)
    assert done(events).text == "Two."
    assert "One, short." in json.dumps(llm.server.asked[-1].body)
    end = done(await turn(llm, Reply(status=400), Reply(status=400), segment=given))
    assert (end.code, "/new" in end.error) == ("request_rejected", True)


async def test_an_answer_without_an_end_has_failed(llm: LlmHarness) -> None:
    reply = Reply("Step 1: copy. Step 2: now del", finish=None, has_usage=False)
    end = done(await turn(llm, reply))
    assert (end.outcome, end.code) == ("failed", "connection")
    assert not FAILURES[end.code]("x").permanent
    call = Reply(calls=(Call("fine", raw_args='{"path": "'),), finish=None, has_usage=False)
    host = MemoryHost({"fine": _fine})
    if llm.name == "llm-openai":
        assert done(await turn(llm, call, host=host)).code == "connection"
    assert host.executed == []


async def _fine(args: dict[str, Any]) -> str:
    return "fine"


CUT = {
    "llm-openai": {"length": "max_tokens", "content_filter": "filter"},
    "llm-anthropic": {"max_tokens": "max_tokens", "refusal": "filter"},
}


async def test_an_answer_that_was_cut_says_so(llm: LlmHarness) -> None:
    for finish, word in CUT[llm.name].items():
        events = await turn(llm, Reply("The first half, then", finish=finish))
        text = done(events).text
        assert text.startswith("The first half, then\n\n[")
        assert word in text
        assert spoken(events) == text
        assert "[" + text.partition("[")[2] not in state_of(events)


@pytest.mark.parametrize("finish", ["eos", "STOP", "end_turn", "whatever"])
async def test_an_unknown_word_for_the_end_is_an_end(llm: LlmHarness, finish: str) -> None:
    if llm.name == "llm-anthropic" and finish != "end_turn":
        return
    assert done(await turn(llm, Reply("All.", finish=finish))).text == "All."


async def _path(args: dict[str, Any]) -> str:
    return str(args["path"])


@pytest.mark.parametrize("call_pieces", [1, 2, 5, 20])
@pytest.mark.parametrize("same_index", [False, True])
async def test_calls_are_told_apart(llm: LlmHarness, call_pieces: int, same_index: bool) -> None:
    tools = {"fs_list": _path, "fs_stat": _path}
    for names in (["fs_list", "fs_stat"], ["fs_stat", "fs_stat", "fs_list"]):
        host = MemoryHost(tools)
        calls = tuple(Call(name, {"path": f"p{n}"}) for n, name in enumerate(names))
        asked = Reply(calls=calls, same_index=same_index, call_pieces=call_pieces)
        events = await turn(llm, asked, Reply("Done."), host=host)
        assert done(events).text == "Done.", done(events).error
        assert host.executed == [(name, {"path": f"p{n}"}) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    "raw",
    [
        '"{\\"path\\": \\"a\\"}"',
        json.dumps(json.dumps(json.dumps({"path": "a"}))),
        '```json\n{"path": "a"}\n```',
        ' {"path": "a"}\n',
    ],
)
async def test_arguments_that_are_encoded_again_are_arguments(llm: LlmHarness, raw: str) -> None:
    if llm.name == "llm-anthropic":
        return
    host = MemoryHost({"fs_list": _path})
    asked = Reply(calls=(Call("fs_list", raw_args=raw),))
    assert done(await turn(llm, asked, Reply("Done."), host=host)).text == "Done."
    assert host.executed == [("fs_list", {"path": "a"})]


@pytest.mark.parametrize("name", ["functions.fs_list", " fs_list", "fs_list<|channel|>commentary"])
async def test_a_tool_with_more_around_its_name_is_found(llm: LlmHarness, name: str) -> None:
    host = MemoryHost({"fs_list": _path})
    asked = Reply(calls=(Call(name, {"path": "a"}),))
    assert done(await turn(llm, asked, Reply("Done."), host=host)).text == "Done."
    assert host.executed == [("fs_list", {"path": "a"})]


HALVES = ["hi \ud83d there", "\ud83d", "x\udc00", "a\ud83d\ude00b"]


@pytest.mark.parametrize("text", HALVES)
async def test_halves_of_characters_lose_no_answer(llm: LlmHarness, text: str) -> None:
    events = await turn(llm, Reply(tuple(text)))
    end = done(events)
    assert end.outcome == "ok", end.error
    end.text.encode()
    assert len(end.text) == (len(text) if "\ude00" not in text else 3)
    after = await turn(llm, Reply("Yes."), engine_state=end.engine_state)
    assert done(after).text == "Yes."


async def test_prompts_are_cached_and_the_cache_is_counted(llm: LlmHarness) -> None:
    host = MemoryHost({"fine": _fine})
    events = await turn(
        llm,
        Reply("Yes.", input_tokens=100, cache_read=60, cache_write=30),
        host=host,
        system="You are ada.",
    )
    (used,) = [event for event in events if isinstance(event, Usage)]
    written = 30 if llm.name == "llm-anthropic" else 0
    assert (used.input_tokens, used.output_tokens) == (100, 7)
    assert (used.cache_read_tokens, used.cache_write_tokens) == (60, written)
    body = llm.server.asked[-1].body
    if llm.name == "llm-anthropic":
        assert body["cache_control"]["type"] == "ephemeral"
        assert "cache_control" in body["tools"][-1]
        assert "cache_control" in body["system"][-1]
    else:
        assert "cache" not in json.dumps(body)


async def test_more_tools_than_a_provider_takes_cost_those_tools(llm: LlmHarness) -> None:
    names = [f"mcp:{server}/t{n}" for n in range(80) for server in ("b", "a")] + ["fine"]
    events = await turn(llm, Reply("Yes."), host=MemoryHost(dict.fromkeys(names, _fine)))
    assert done(events).text == "Yes."
    (notice,) = [event.text for event in events if isinstance(event, EngineNotice)]
    assert "mcp:b/t" in notice
    sent = [tool.get("function", tool)["name"] for tool in llm.server.asked[-1].body["tools"]]
    assert len(sent) == 128
    assert sent[0] == "fine"
    await turn(llm, Reply("Yes."), host=MemoryHost(dict.fromkeys(reversed(names), _fine)))
    again = [tool.get("function", tool)["name"] for tool in llm.server.asked[-1].body["tools"]]
    assert again == sent, "the order stays, so that it can be cached"


ODD_SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "array"}]},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {}}}}},
    {"$ref": "#/$defs/gone"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "string", "enum": ["a"]},
    {"properties": {"a": {"$ref": "https://example.org/x"}}},
]


@pytest.mark.parametrize("schema", ODD_SCHEMAS)
async def test_an_odd_schema_of_a_server_costs_no_turn(
    llm: LlmHarness, schema: dict[str, Any]
) -> None:
    host = MemoryHost({"mcp:s/pick": _fine, "fine": _fine})
    host.schemas["mcp:s/pick"] = schema
    assert done(await turn(llm, Reply("Yes."), host=host)).text == "Yes."
    assert "$ref" not in json.dumps(llm.server.asked[-1].body["tools"])


async def test_a_tool_that_is_refused_is_left_out_and_named(llm: LlmHarness) -> None:
    host = MemoryHost({"mcp:s/bad": _fine, "fine": _fine})
    refused = Reply(status=400, error="Invalid schema for function 'mcp__s__bad': no.")
    events = await turn(llm, refused, Reply("Yes."), host=host)
    assert done(events).text == "Yes."
    (notice,) = [event.text for event in events if isinstance(event, EngineNotice)]
    assert "mcp:s/bad" in notice
    assert done(await turn(llm, Reply("Yes."), host=host)).text == "Yes."
    by_place = Reply(status=400, error="tools.0.custom.input_schema: not supported")
    assert done(await turn(llm, by_place, Reply("Yes."), host=host)).text == "Yes."
    assert [tool.get("name") for tool in llm.server.asked[-1].body["tools"]] in (
        ["ask_user"],
        [None],
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}] * 2000},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": 7, "required": "x"},
        {"type": ["object", "null"], "oneOf": 3},
    ],
)
def test_a_schema_that_goes_in_circles_is_bounded(schema: dict[str, Any]) -> None:
    found = accepted(schema)
    assert found["type"] == "object"
    assert isinstance(found.get("properties", {}), dict)


WRITTEN = (
    '{"name": "fs_list", "arguments": {"path": "a"}}',
    '```json\n{"name": "fs_list", "arguments": {"path": "a"}}\n```',
    '<tool_call>\n{"name": "fs_list", "arguments": {"path": "a"}}\n</tool_call>',
    'I will look.\n<tool_call>{"name": "fs_list", "arguments": {}}</tool_call>',
    "<tool_call>\n<function=fs_list>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
    '[TOOL_CALLS] [{"name": "fs_list", "arguments": {"path": "a"}}]',
    '[{"type": "function", "function": {"name": "fs_list", "arguments": "{}"}}]',
)


@pytest.mark.parametrize("text", WRITTEN)
async def test_a_call_that_is_written_as_text_is_not_the_answer(llm: LlmHarness, text: str) -> None:
    host = MemoryHost({"fs_list": _path})
    call = Reply(calls=(Call("fs_list", {"path": "a"}),))
    events = await turn(llm, Reply(tuple(text)), call, Reply("Done."), host=host)
    assert done(events).text == "Done."
    if not text.startswith("I will"):
        assert spoken(events) == "Done."
    assert "arguments" not in state_of(events)
    assert host.executed == [("fs_list", {"path": "a"})]
    stubborn = MemoryHost({"fs_list": _path})
    end = done(await turn(llm, Reply(text), Reply(text), host=stubborn))
    assert (end.outcome, stubborn.executed) == ("ok", [])
    assert "tool parser" in end.text


@pytest.mark.parametrize(
    "text", ['{"name": "Ada", "arguments": []}', '{"a": 1}', "<tool_call> is a tag."]
)
async def test_other_json_is_an_answer(llm: LlmHarness, text: str) -> None:
    assert done(await turn(llm, Reply(text), host=MemoryHost({"fs_list": _path}))).text == text


# -- what else was reported of servers ---------------------------------------------------------------

DONE = "data: [DONE]\n\n"


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def counted(**usage: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage}


END = (chunk({}, "stop"), DONE)
FOUR = chunk({"content": "Four."})
AZURE = {"id": "", "model": "", "object": "", "created": 0}
THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "SECRET"}]}]
STREAMS: dict[str, tuple[dict[str, Any] | str, ...]] = {
    "an end without a delta (agent-framework#5734)": (FOUR, chunk(None, "stop"), DONE),
    "a note of a filter (autogen#6465)": (
        FOUR,
        {**AZURE, "choices": [{"index": 0, "finish_reason": None}]},
        *END,
    ),
    "the filter first (llama_index#8995)": (
        {**AZURE, "choices": [], "prompt_filter_results": [{}]},
        FOUR,
        *END,
    ),
    "null between two (autogen#7130)": (
        chunk({"content": "Fo"}),
        "data: null\n\n",
        chunk({"content": "ur."}),
        *END,
    ),
    "usage without choices (cline#8384)": (
        FOUR,
        chunk({}, "stop"),
        {"choices": None, "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}},
        DONE,
    ),
    "counts of null (livekit/agents#6595)": (
        FOUR,
        chunk({}, "stop"),
        counted(prompt_tokens=None, completion_tokens=None, total_tokens=None),
        DONE,
    ),
    "one count (vercel/ai#2763)": (
        FOUR,
        chunk({}, "stop"),
        counted(prompt_tokens=11, total_tokens=11),
        DONE,
    ),
    "details alone (llmgateway#2861)": (
        {**FOUR, "usage": {"prompt_tokens_details": {"cached_tokens": 0}}},
        *END,
    ),
    "content in parts (litellm#16272)": (
        chunk({"content": THOUGHT}),
        chunk({"content": [{"type": "text", "text": "Fo"}]}),
        chunk({"content": "ur."}),
        *END,
    ),
    "no mark of the end (LocalAI#340)": (FOUR, chunk({}, "stop")),
}


@pytest.mark.parametrize("name", sorted(STREAMS))
async def test_an_odd_stream_is_an_answer(llm: LlmHarness, name: str) -> None:
    if llm.name == "llm-anthropic":
        return
    events = await turn(llm, Reply(chunks=STREAMS[name]))
    assert (done(events).outcome, done(events).text) == ("ok", "Four."), done(events).error
    assert SECRET not in spoken(events)


def called(arguments: Any, **more: Any) -> dict[str, Any]:
    made = {"index": 0, "id": "c1", "type": "function"} | more
    return {"tool_calls": [{**made, "function": {"name": "fs_list", "arguments": arguments}}]}


ARGUMENTS = '{"path": "a"}'
LATER = chunk({"tool_calls": [{"index": 0, "id": "", "function": {"arguments": ARGUMENTS}}]})
CALLED = (chunk({}, "tool_calls"), DONE)
CALLS: dict[str, tuple[dict[str, Any] | str, ...]] = {
    "an object of arguments (llama.cpp#20198)": (chunk(called({"path": "a"})), *CALLED),
    "{} before them (openai-agents-js#712)": (chunk(called("{}")), LATER, *CALLED),
    "null before them (ogx#5462)": (chunk(called(None)), LATER, *CALLED),
    "no id (opencode#4590)": (chunk(called(ARGUMENTS, id="")), *CALLED),
    "an id of null": (chunk(called(ARGUMENTS, id=None)), *CALLED),
}


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_an_odd_call_is_made(llm: LlmHarness, name: str) -> None:
    if llm.name == "llm-anthropic":
        return
    host = MemoryHost({"fs_list": _path})
    events = await turn(llm, Reply(chunks=CALLS[name]), Reply("Done."), host=host)
    assert done(events).text == "Done.", done(events).error
    assert host.executed == [("fs_list", {"path": "a"})]
    assert llm.server.violations == []


async def test_a_call_without_arguments_is_one(llm: LlmHarness) -> None:
    host = MemoryHost({"fine": _fine})
    calls = (Call("fine", {}), Call("fine", {}))
    events = await turn(llm, Reply(calls=calls, same_index=True), Reply("Done."), host=host)
    assert done(events).text == "Done."
    assert host.executed == [("fine", {}), ("fine", {})]


def ids_of(llm: LlmHarness) -> list[str]:
    """The ids of the calls in the history of the last request."""
    found = []
    for message in llm.server.asked[-1].messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        found += [call["id"] for call in message.get("tool_calls") or ()]
        found += [block["id"] for block in blocks if block["type"] == "tool_use"]
    return found


@pytest.mark.parametrize("together", [True, False], ids=["crush#3121", "craft-agents-oss#753"])
async def test_calls_with_the_same_id_get_their_own(llm: LlmHarness, together: bool) -> None:
    host = MemoryHost({"fs_list": _path})
    calls = [Call("fs_list", {"path": path}, "call_0") for path in "ab"]
    asked = [Reply(calls=tuple(calls))] if together else [Reply(calls=(call,)) for call in calls]
    first = await turn(llm, *asked, Reply("Done."), host=host)
    assert done(first).text == "Done.", done(first).error
    assert ids_of(llm) == ["call_0", "call_0_2"]
    # In a later turn, too.
    events = await turn(
        llm,
        Reply(calls=(calls[0],)),
        Reply("Done."),
        host=host,
        engine_state=done(first).engine_state,
    )
    assert done(events).text == "Done."
    assert ids_of(llm) == ["call_0", "call_0_2", "call_0_3"]
    assert [args["path"] for _, args in host.executed] == ["a", "b", "a"]
    assert llm.server.violations == []


NO_TOOLS = {
    "pydantic-ai#703": (400, "registry.ollama.ai/library/llama3:8b does not support tools"),
    "a server of vLLM": (
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ),
    "openrouter": (404, 'No endpoints found that support tool use. Try disabling "fs_list".'),
}


@pytest.mark.parametrize("name", sorted(NO_TOOLS))
async def test_a_model_without_tools_answers_without_them(llm: LlmHarness, name: str) -> None:
    status, error = NO_TOOLS[name]
    host = MemoryHost({"fs_list": _path})
    events = await turn(llm, Reply(status=status, error=error), Reply("Hello."), host=host)
    assert done(events).text == "Hello.", done(events).error
    (notice,) = [event.text for event in events if isinstance(event, EngineNotice)]
    assert "offered no tools" in notice
    assert error[:20] in notice
    # It is not asked again with tools.
    again = await turn(llm, Reply("Hello again."), host=host)
    assert done(again).text == "Hello again."
    assert not llm.server.asked[-1].body.get("tools")


async def test_what_is_said_in_a_row_is_one_message(llm: LlmHarness) -> None:
    history = (
        HistoryItem("user", "one"),
        HistoryItem("note", "a note"),
        HistoryItem("assistant", "One."),
        HistoryItem("user", "two"),
    )
    await turn(llm, Reply("Three."), history=history, text="three")
    said = [m for m in llm.server.asked[-1].messages if m["role"] != "system"]
    assert [each["role"] for each in said] == ["user", "assistant", "user"], "Agent-S#70"
    assert "one\n\n[note] a note" in json.dumps(said[0], ensure_ascii=False).replace("\\n", "\n")
    assert "two\n\nthree" in json.dumps(said[2]).replace("\\n", "\n")
