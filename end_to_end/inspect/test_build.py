"""The built files that are committed are those of the sources beside them. Needs no npm: digests tell."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "inspector-ui"
BUILT = ROOT / "zllm_ref" / "inspector" / "static"
SOURCES = ("index.html", "package.json", "package-lock.json", "public", "src", "tools", "tsconfig.json", "vite.config.ts")
"""As in inspector-ui/tools/build-record.ts."""


def source_digest() -> str:
    files = [path for name in SOURCES for path in ((SOURCE / name).rglob("*") if (SOURCE / name).is_dir() else [SOURCE / name])]
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(SOURCE).as_posix(), path) for path in files if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def test_the_committed_page_was_built_from_the_committed_sources() -> None:
    record = json.loads((BUILT / "build.json").read_text("utf-8"))

    assert source_digest() == record["source"], "inspector-ui was changed without a build: npm ci && npm run build"


def test_no_built_file_was_changed_by_hand() -> None:
    record = json.loads((BUILT / "build.json").read_text("utf-8"))

    files = {
        path.relative_to(BUILT).as_posix(): path for path in BUILT.rglob("*") if path.is_file() and path.name != "build.json"
    }
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == record["files"]


def test_both_languages_have_the_same_texts() -> None:
    keys = {
        language: re.findall(r'^  "([\w.]+)":', (SOURCE / "src" / "text" / f"{language}.ts").read_text("utf-8"), re.MULTILINE)
        for language in ("en", "zh")
    }

    assert len(keys["en"]) > 200
    assert keys["zh"] == keys["en"]


def test_the_page_names_no_other_host() -> None:
    text = "".join(path.read_text("utf-8") for path in BUILT.iterdir() if path.suffix in (".js", ".css", ".html"))

    hosts = set(re.findall(r"(?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+)", text))
    assert hosts <= {"www.w3.org"}  # names of XML namespaces, which nobody asks


def test_every_package_in_the_bundle_has_its_licence_beside_it() -> None:
    locked = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))["packages"]
    notices = (BUILT / "THIRD-PARTY.txt").read_text("utf-8")

    shipped = {path.removeprefix("node_modules/"): entry for path, entry in locked.items() if path and not entry.get("dev")}
    assert "preact" in shipped
    for name, entry in shipped.items():
        assert f"{name} {entry['version']} ({entry['license']})" in notices


def test_no_text_is_left_that_nothing_shows() -> None:
    keys = re.findall(r'^  "([\w.]+)":', (SOURCE / "src" / "text" / "en.ts").read_text("utf-8"), re.MULTILINE)
    code = "".join(path.read_text("utf-8") for path in (SOURCE / "src").rglob("*.ts*") if path.parent.name != "text")

    made = re.findall(r"\bt\(`([\w.]+)\$\{", code) + re.findall(r'\bnamed\("([\w.]+)"', code)
    assert [key for key in keys if f'"{key}"' not in code and not key.startswith(tuple(made))] == []
