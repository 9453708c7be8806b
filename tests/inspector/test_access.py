"""Who may look, and at what: this machine, a key's own namespace, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.inspector.stage import Stage, events, new_stage
from zllm_ref.config import ServerSettings
from zllm_ref.server import create_app

HELLO = [{"role": "user", "content": "The word of this key is "}]
PATHS = ("requests", "cache", "cache/gauge", "kv", "families")


@pytest.fixture(scope="module")
def open_stage() -> Iterator[Stage]:
    stage = new_stage()
    yield stage
    stage.engine.close()


@pytest.fixture
def keyed() -> Iterator[Stage]:
    stage = new_stage(keys=("key-a", "key-b"))
    yield stage
    stage.engine.close()


def as_key(stage: Stage, key: str) -> Stage:
    return Stage(stage.engine, stage.recorder, stage.inspector, stage.app, {"authorization": f"Bearer {key}"})


async def word(stage: Stage, text: str) -> str:
    name, _ = await stage.chat([{"role": "user", "content": f"The word is {text}, and it is repeated: {text}."}])
    return name


@pytest.mark.parametrize("path", PATHS)
async def test_with_keys_every_path_wants_one(keyed: Stage, path: str) -> None:
    refused = await keyed.get(path, status=401)
    wrong = await as_key(keyed, "key-c").get(path, status=401)

    assert refused["error"]["code"] == wrong["error"]["code"] == "unauthenticated"
    await as_key(keyed, "key-a").get(path)


async def test_about_says_without_a_key_that_one_is_needed_and_nothing_else(keyed: Stage) -> None:
    about = await keyed.get("about")

    assert about["keys_required"] is True
    assert {name: value for name, value in about.items() if value is not None} == {"keys_required": True}
    assert (await as_key(keyed, "key-a").get("about"))["model"] == "scripted"
    await as_key(keyed, "wrong").get("about", status=401)


async def test_a_key_sees_its_own_requests_and_states_only(keyed: Stage) -> None:
    first, second = as_key(keyed, "key-a"), as_key(keyed, "key-b")
    of_first = await word(first, "plum")
    of_second = await word(second, "pear")

    for stage, own, other, foreign in ((first, of_first, of_second, "pear"), (second, of_second, of_first, "plum")):
        listed = await stage.get("requests")
        assert [one["id"] for one in listed["requests"]] == [own]
        for panel in ("", "/wire", "/conversation", "/segments", "/tokens", "/context", "/prefix", "/decode"):
            await stage.get(f"requests/{other}{panel}", status=404)
            assert foreign not in str(await stage.get(f"requests/{own}{panel}"))
        cache = await stage.get("cache")
        assert foreign not in str(cache)
        assert [node["state"]["request"] for node in cache["roots"]] == [own]


async def test_a_salted_namespace_is_still_the_keys_own(keyed: Stage) -> None:
    first = as_key(keyed, "key-a")
    messages = [{"role": "user", "content": "The word is plum."}]
    await first.chat(messages, cache_salt="one")

    cache = await first.get("cache")
    other = await as_key(keyed, "key-b").get("cache")

    assert len(cache["roots"]) == 1
    assert other["roots"] == []


async def test_news_are_of_the_own_requests_only(keyed: Stage) -> None:
    first, second = as_key(keyed, "key-a"), as_key(keyed, "key-b")
    await word(second, "pear")

    seen: list[str] = []
    async with events(first) as news:
        async for name, data in news:
            if name == "requests":
                seen += [one["id"] for one in data["requests"]]
                if not seen:
                    own = await word(first, "plum")
                    await word(second, "fig")
                    continue
                if data["requests"][0]["state"] == "ended":
                    break

    assert set(seen) == {own}


async def test_shared_states_show_no_texts_of_other_keys() -> None:
    stage = new_stage(keys=("key-a", "key-b"), cache_sharing=True)
    try:
        await word(as_key(stage, "key-b"), "pear")
        mine = as_key(stage, "key-a")
        own = await word(mine, "plum")

        cache = await mine.get("cache")
        prefix = await mine.get(f"requests/{own}/prefix")

        assert cache["roots"]
        assert "pear" not in str(cache)
        assert "pear" not in str(prefix)
        assert [one["id"] for one in (await mine.get("requests"))["requests"]] == [own]
    finally:
        stage.engine.close()


@pytest.mark.parametrize("host", ["10.0.0.7", "2001:db8::1", ""])
async def test_another_machine_is_refused_everywhere(open_stage: Stage, host: str) -> None:
    far = Stage(open_stage.engine, open_stage.recorder, open_stage.inspector, open_stage.app, host=host)

    for path in ("about", *PATHS):
        assert (await far.get(path, status=403))["error"]["code"] == "not_loopback"
    async with far.client() as client:
        assert (await client.get("/inspect")).status_code == 403
        assert (await client.get("/inspect/static/app.js")).status_code == 403
        assert (await client.get("/inspect/api/events")).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost:8000", 200), ("localhost", 200), ("[::1]:8000", 200), ("evil.example:8000", 403),
     ("127.0.0.1.evil.example", 403), ("10.0.0.7:8000", 403), ("", 403), ("[2001:db8::1]:8000", 403)],
)  # fmt: skip
async def test_a_page_that_renamed_itself_to_this_machine_is_refused(open_stage: Stage, host: str, status: int) -> None:
    async with open_stage.client() as client:
        answer = await client.get("/inspect/api/about", headers={"host": host})

    assert answer.status_code == status


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via"])
async def test_what_a_proxy_of_this_machine_passes_on_is_refused(open_stage: Stage, name: str) -> None:
    """Its own address is loopback, and what the header says of the client is the client's own word."""
    async with open_stage.client() as client:
        headers = {name: "for=127.0.0.1" if name == "Forwarded" else "127.0.0.1"}
        answers = [await client.get(path, headers=headers) for path in ("/inspect", "/inspect/api/about", "/inspect/api/kv")]

    assert [answer.status_code for answer in answers] == [403, 403, 403]


async def test_remote_machines_are_let_in_where_the_server_was_told_so() -> None:
    stage = new_stage(inspect_remote=True)
    try:
        far = Stage(stage.engine, stage.recorder, stage.inspector, stage.app, host="10.0.0.7")
        async with far.client() as client:
            assert (await client.get("/inspect/api/about", headers={"host": "box.example"})).status_code == 200
    finally:
        stage.engine.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_form_of_a_foreign_page_is_refused(open_stage: Stage, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    async with open_stage.client() as client:
        answer = await client.post("/inspect/api/render", content=b"{}", headers=headers)

    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


async def test_a_body_beyond_the_bound_is_refused(open_stage: Stage) -> None:
    async with open_stage.client() as client:
        content = b'{"family": "loaded", "messages": "' + b"x" * (2 << 20) + b'"}'
        answer = await client.post("/inspect/api/render", content=content, headers={"content-type": "application/json"})

    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


async def test_without_an_inspector_nothing_is_there_and_answers_are_the_same(open_stage: Stage) -> None:
    engine = open_stage.engine
    told, engine.observer = engine.observer, None
    try:
        app = create_app(engine, ServerSettings())
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            assert (await client.get("/inspect")).status_code == 404
            assert (await client.get("/inspect/api/about")).status_code == 404
            body = {"model": "scripted", "messages": HELLO}
            plain = (await client.post("/v1/chat/completions", json=body)).json()
    finally:
        engine.observer = told
    _, recorded = await open_stage.ask("/v1/chat/completions", {"model": "scripted", "messages": HELLO})

    assert plain["choices"] == recorded.json()["choices"]


async def test_keys_and_cookies_are_never_recorded(keyed: Stage) -> None:
    stage = as_key(keyed, "key-a")
    stage.headers |= {"cookie": "session=secret-cookie", "x-api-key": "key-a"}

    name = await word(stage, "plum")

    shown = str(await stage.get(f"requests/{name}/wire"))
    assert "key-a" not in shown
    assert "secret-cookie" not in shown


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>inspect</title>")
    (folder / "app.js").write_text("1")
    (tmp_path / "secret.txt").write_text("not for the page")
    monkeypatch.setattr("zllm_ref.server.inspect_api.files", lambda package: tmp_path)
    return folder


async def test_the_pages_files_have_their_types_a_tag_and_a_policy(open_stage: Stage, static: Path) -> None:
    async with open_stage.client() as client:
        for path in ("/inspect", "/inspect/"):
            page = await client.get(path)
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert "http" not in page.headers["content-security-policy"]
        script = await client.get("/inspect/static/app.js")
        again = await client.get("/inspect/static/app.js", headers={"if-none-match": script.headers["etag"]})
        (static / "app.js").write_text("2")
        changed = await client.get("/inspect/static/app.js", headers={"if-none-match": script.headers["etag"]})

    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (again.status_code, again.content) == (304, b"")
    assert (changed.status_code, changed.content) == (200, b"2")


@pytest.mark.parametrize("name", ["..%2Fsecret.txt", "%2E%2E/secret.txt", "missing.js", "%00"])
async def test_no_other_file_is_served(open_stage: Stage, static: Path, name: str) -> None:
    async with open_stage.client() as client:
        answer = await client.get(f"/inspect/static/{name}")

    assert answer.status_code == 404
    assert b"not for the page" not in answer.content
