"""The operator looks at what an agent remembers, pins, forgets and prunes it; nobody else does."""

from __future__ import annotations

import pytest

from agentsup.agents.memory import AgentMemory, MemoryOwner
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from tests.component.api.conftest import ApiFixture

SCOUT = MemoryOwner("agt_Scout", person="operator")


@pytest.fixture
async def saved(rig: ApiFixture) -> ApiFixture:
    clock = SystemClock()
    memory = AgentMemory(rig.database, clock, SystemEntropy(clock))
    for key, content, confidence in (("tea", "green", 0.5), ("bike", "blue", 0.05)):
        await memory.save(SCOUT, key, content, confidence=confidence)
    await memory.save(SCOUT, "tea", "for all", scope="global")
    await memory.save(MemoryOwner("agt_worker"), "tea", "black", scope="global")
    return rig


async def keys(rig: ApiFixture, query: str = "") -> list[str]:
    status, document, _ = await rig.call("GET", f"/agents/scout/memory{query}")
    assert status == 200, document
    return [f"{one['key']}/{one['scope']}" for one in document["memories"]]


async def test_it_is_listed_found_and_shown(saved: ApiFixture) -> None:
    _, document, _ = await saved.call("GET", "/agents/scout/memory?limit=1")
    assert (document["agent"], document["total"]) == ("Scout", 3)
    assert len(document["memories"]) == 1
    assert document["memories"][0]["content"] == "for all"
    assert await keys(saved, "?q=GREEN%22") == ["tea/instance"]
    assert await keys(saved, "?q=black") == []
    assert await keys(saved, "?key=tea") == ["tea/instance", "tea/global"]
    assert await keys(saved, "?kind=skill") == []


async def test_it_is_pinned_forgotten_and_pruned(saved: ApiFixture) -> None:
    base = "/agents/scout/memory"
    _, document, _ = await saved.call("POST", f"{base}/pin", {"key": "bike"})
    assert (document["success"], document["count"]) == (True, 1)
    _, document, _ = await saved.call("POST", f"{base}/prune", {"below": 0.1})
    assert document["count"] == 0
    await saved.call("POST", f"{base}/pin", {"key": "bike", "pinned": False})
    _, document, _ = await saved.call("POST", f"{base}/prune", {"below": 0.1})
    assert document["count"] == 1
    _, document, _ = await saved.call("POST", f"{base}/forget", {"key": "tea", "scope": "global"})
    assert document["count"] == 1
    assert await keys(saved) == ["tea/instance"]
    _, document, _ = await saved.call("GET", "/agents/worker/memory")
    assert document["total"] == 1


@pytest.mark.parametrize(
    "method, path, body, status",
    [
        ("GET", "/agents/ghost/memory", None, 404),
        ("GET", "/agents/scout/memory?key=none", None, 404),
        ("GET", "/agents/scout/memory?kind=odd", None, 400),
        ("GET", "/agents/scout/memory?limit=0", None, 400),
        ("POST", "/agents/scout/memory/pin", {"key": "none"}, 404),
        ("POST", "/agents/scout/memory/pin", {}, 400),
        ("POST", "/agents/scout/memory/pin", {"id": "mem_x"}, 400),
        ("POST", "/agents/scout/memory/pin", {"id": "mem_x", "updated_at": 1}, 404),
        ("POST", "/agents/scout/memory/forget", {"key": "tea", "id": "m", "updated_at": 1}, 400),
        ("POST", "/agents/scout/memory/forget", {"key": "tea", "scope": "odd"}, 400),
        ("POST", "/agents/scout/memory/prune", {"below": 2}, 400),
        ("POST", "/agents/scout/memory/prune", {}, 400),
    ],
)
async def test_what_is_wrong_is_refused(
    saved: ApiFixture, method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    assert (await saved.call(method, path, body))[0] == status
    assert len(await keys(saved)) == 3


async def test_agents_do_not_read_each_others_memory_over_http(saved: ApiFixture) -> None:
    token = saved.tokens.issue_run("agt_Scout", "Scout", "msg_1")
    for path in ("/agents/scout/memory", "/agents/worker/memory"):
        assert (await saved.call("GET", path, token=token))[0] == 403


async def test_one_entry_is_shared_as_it_was_shown(saved: ApiFixture) -> None:
    base = "/agents/scout/memory"
    _, document, _ = await saved.call("GET", f"{base}?key=tea")
    private, wide = document["memories"]
    body = {"id": wide["id"], "updated_at": wide["updated_at"] - 1, "scope": "global"}
    status, document, _ = await saved.call("POST", f"{base}/share", body)
    assert (status, document["code"]) == (409, "not_seen")
    status, document, _ = await saved.call("POST", f"{base}/share", {"key": "tea"})
    assert status == 400, "a key names perhaps several"
    body["updated_at"] += 1
    assert (await saved.call("POST", "/agents/worker/memory/share", body))[0] == 404
    _, document, _ = await saved.call("POST", f"{base}/share", body)
    assert (document["memory"]["content"], document["replaced"]) == ("for all", False)
    assert document["memory"]["shared_by"]
    _, document, _ = await saved.call("GET", f"{base}?key=tea")
    assert document["memories"][0] == private


async def test_a_key_names_the_operators_own_and_an_id_one_entry_as_it_was_shown(
    saved: ApiFixture,
) -> None:
    clock = SystemClock()
    memory = AgentMemory(saved.database, clock, SystemEntropy(clock))
    annas = MemoryOwner("agt_Scout", person="person:anna")
    entry = (await memory.save(annas, "tea", "for me alone")).entry
    base = "/agents/scout/memory"
    _, document, _ = await saved.call("POST", f"{base}/pin", {"key": "tea"})
    assert document["count"] == 2
    _, document, _ = await saved.call("POST", f"{base}/forget", {"key": "tea"})
    assert document["count"] == 2
    _, document, _ = await saved.call("GET", f"{base}?key=tea")
    assert [(one["person"], one["pinned"]) for one in document["memories"]] == [("anna", False)]
    _, document, _ = await saved.call("POST", f"{base}/forget", {"key": "tea"})
    assert document["count"] == 0
    body = {"id": entry.memory_id, "updated_at": entry.updated_at}
    for verb in ("pin", "forget"):
        wrong = {**body, "updated_at": entry.updated_at - 1}
        status, document, _ = await saved.call("POST", f"{base}/{verb}", wrong)
        assert (status, document["code"]) == (409, "not_seen")
        _, document, _ = await saved.call("POST", f"{base}/{verb}", body)
        assert document["count"] == 1
    assert await keys(saved) == ["bike/instance"]


async def test_what_moved_here_is_added_once_and_nothing_here_gives_way(saved: ApiFixture) -> None:
    path = "/agents/scout/memory/import"
    moved = {
        "key": "boat",
        "content": "red",
        "scope": "global",
        "shared": True,
        "pinned": True,
        "use_count": 7,
        "tags": ["water"],
        "created_at": 1000,
        "updated_at": 2000,
    }
    own = {**moved, "key": "tea", "content": "black", "scope": "instance", "shared": False}
    hers = {**own, "person": "person:ute"}
    _, document, _ = await saved.call("POST", path, {"memories": [moved, own, hers]})
    assert (document["success"], document["count"]) == (True, 2)  # a tea of the operator is here
    _, document, _ = await saved.call("POST", path, {"memories": [moved]})
    assert document["count"] == 0
    _, document, _ = await saved.call("GET", "/agents/scout/memory?key=boat")
    (boat,) = document["memories"]
    shown = {name: boat[name] for name in ("content", "scope", "pinned", "use_count", "tags")}
    wanted = {
        "content": "red",
        "scope": "global",
        "pinned": True,
        "use_count": 7,
        "tags": ["water"],
    }
    assert shown == wanted
    assert (boat["shared_by"], boat["created_at"], boat["updated_at"]) == ("operator", 1000, 2000)
    _, document, _ = await saved.call("GET", "/agents/scout/memory?key=tea")
    found = {(one["person"], one["scope"]): one["content"] for one in document["memories"]}
    assert found["operator", "instance"] == "green"
    assert found["ute", "instance"] == "black"
    status, _, _ = await saved.call("POST", path, {"memories": [{**moved, "content": " "}]})
    assert status == 400
    assert (await saved.call("POST", path, {"memories": []}))[0] == 400
