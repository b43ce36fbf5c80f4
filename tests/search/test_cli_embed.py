"""`interlock embed` and `interlock search`, as a user types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresTestServer
from typer.main import get_command
from typer.testing import CliRunner, Result

from interlock.errors import StoreError
from interlock.runtime.cli.app import app
from interlock.runtime.cli.embed import EmbedOptions, EmbedRun
from interlock.runtime.cli.search import SNIPPET, snippet
from interlock.runtime.search.sqlite import SqliteCollection

CATALOG = """
embedding_width: 256
models:
  - {id: words, identity: bag, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256,
     max_batch_items: 10, prices: {input: 1.00, as_of: 2026-11-30, source: made up}}
  - {id: others, identity: other, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256,
     context_window: 12, max_batch_items: 10, prices: {input: 0}}
pins: {embeddings: words}
"""
TEXTS = ("Parse command line arguments.", "Compress a file with gzip.", "Send an electronic mail.")


class Folder:
    """A folder with a catalog and an input, which is the current one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "catalog.yaml").write_text(CATALOG, encoding="utf-8")

    def lines(self, *values: Any, file: str = "docs.jsonl") -> None:
        written = [value if isinstance(value, str) else json.dumps(value) for value in values]
        (self.path / file).write_text("".join(f"{line}\n" for line in written), encoding="utf-8")

    def three(self) -> None:
        self.lines(*({"id": f"t{at}", "text": text, "at": at} for at, text in enumerate(TEXTS)))

    def many(self, count: int) -> None:
        self.lines(*({"id": at, "text": f"Number {at}."} for at in range(count)))

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    def embed(self, *words: str, store: str = "sqlite:///docs.db") -> Result:
        given = ("--input", "docs.jsonl", "--store", store, "--catalog", "catalog.yaml")
        return self.call("embed", *given, *words)

    def search(self, question: str, *words: str, store: str = "sqlite:///docs.db") -> Any:
        given = (question, "--store", store, "--catalog", "catalog.yaml", "--json")
        result = self.call("search", *given, *words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def process(self, code: str = "") -> subprocess.Popen[str]:
        """The same command in a process of its own, after some code."""
        words = ["embed", "--input", "docs.jsonl", "--store", "sqlite:///docs.db", "--catalog", "catalog.yaml"]
        main = (
            f"{code}\nimport sys; sys.argv = ['interlock', *{words!r}]; from interlock.runtime.cli import main; main()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", main], cwd=self.path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_a_file_is_embedded_and_searched(folder: Folder) -> None:
    folder.three()
    result = folder.embed()
    assert result.exit_code == 0, result.output
    assert re.match(r"3 of 3 documents embedded; \d+ tokens; 0\.0000 USD\.\n", result.stderr)
    assert "The collection documents holds 3 documents with vectors of words, 256 wide." in result.stderr
    found = folder.search("How do I read the command line?", "-k", "2")
    assert [sorted(one) for one in found] == [["fields", "id", "score", "text"]] * 2
    assert (found[0]["id"], found[0]["text"], found[0]["fields"]) == ("t0", TEXTS[0], {"at": 0})
    shown = folder.call("search", "electronic mail", "--store", "sqlite:///docs.db", "--catalog", "catalog.yaml")
    assert re.search(r"0\.\d{3} │ t2 +│ Send an electronic mail\.", shown.stdout)
    recorded = json.loads(folder.call("calls", "--json").stdout)
    assert [call["model"] for call in recorded] == ["words"] * 3  # the batch and two questions


def test_a_second_time_nothing_is_paid(folder: Folder) -> None:
    folder.three()
    folder.embed()
    again = folder.embed()
    assert again.exit_code == 0
    assert "0 of 3 documents embedded; 3 were stored before." in again.stderr
    assert len(json.loads(folder.call("calls", "--json").stdout)) == 1


def test_bad_lines_are_named_with_file_and_line_before_anything_is_sent(folder: Folder) -> None:
    bad = ('{"text": ', {"id": 5}, {"text": 7}, {"text": " "}, ["text"], {"id": [1], "text": "a"})
    folder.lines({"id": "a", "text": "good"}, *bad)
    refused = folder.embed()
    assert refused.exit_code == 2
    assert refused.stderr.startswith("interlock: docs.jsonl: line 2: not JSON")
    for told in ("line 3: has no 'text'", "line 4: its 'text' is int, not text", "line 5: its 'text' is empty"):
        assert told in refused.stderr
    assert "line 6: must be an object" in refused.stderr
    assert "and 1 more" in refused.stderr
    assert sorted(path.name for path in folder.path.iterdir()) == ["catalog.yaml", "docs.jsonl"]
    left_out = folder.embed("--skip-bad")
    assert left_out.exit_code == 0
    assert "1 of 1 documents embedded" in left_out.stderr
    assert "6 bad lines left out" in left_out.stderr
    assert "docs.jsonl line 7: its 'id' is neither text nor a whole number" in left_out.stderr


def test_two_lines_of_one_id_that_say_different_things_are_no_input(folder: Folder) -> None:
    folder.lines({"id": 1, "text": "one"}, {"id": "2", "text": "two"}, {"id": "1", "text": "another"})
    result = folder.embed()
    assert result.exit_code == 2
    assert "line 3: has the id '1' of line 1, and says something else" in result.stderr
    folder.lines({"id": 1, "text": "one"}, {"id": "2", "text": "two"}, {"id": 1, "text": "one"})
    result = folder.embed()
    assert result.exit_code == 0
    assert "2 of 2 documents embedded" in result.stderr
    assert "1 lines say the same again" in result.stderr


def test_lines_without_an_id_are_known_by_what_they_say(folder: Folder) -> None:
    folder.lines({"text": "one"}, {"text": "two"}, {"text": "two", "more": 1}, {"text": "one"})
    assert "3 of 3 documents embedded" in folder.embed().stderr
    folder.lines({"text": "zero"}, {"text": "one"}, {"text": "two"})  # all moved by a line
    assert "1 of 3 documents embedded" in folder.embed().stderr
    assert len({one["id"] for one in folder.search("one")}) == 4


def test_the_text_and_the_id_may_have_other_names(folder: Folder) -> None:
    folder.lines({"sku": 17, "body": "Compress a file.", "id": {"not": "this"}}, {"body": "no sku"})
    refused = folder.embed("--field", "body", "--id-field", "sku")
    assert "line 2: has no 'sku' to be its id" in refused.stderr
    assert folder.embed("--field", "body", "--id-field", "sku", "--skip-bad").exit_code == 0
    assert folder.search("compress")[0]["id"] == "17"
    assert folder.search("compress")[0]["fields"] == {"id": {"not": "this"}}


def test_another_model_is_refused_with_a_command_that_works(folder: Folder) -> None:
    folder.three()
    folder.embed("--collection", "my notes", store="sqlite:///my docs.db")
    refused = folder.embed("--collection", "my notes", "--model", "others", store="sqlite:///my docs.db")
    assert refused.exit_code == 2
    assert "holds vectors of words (bag), and others (other) writes others" in refused.stderr
    done = folder.call(*_command_in(refused))
    assert done.exit_code == 0, done.output
    assert "3 of 3 documents embedded" in done.stderr
    assert "holds 3 documents with vectors of others" in done.stderr
    found = folder.search(TEXTS[1], "--collection", "my notes", "-k", "1", store="sqlite:///my docs.db")
    assert found[0]["id"] == "t1"


def test_a_model_that_the_catalog_lost_is_refused_with_a_command_that_works(folder: Folder) -> None:
    folder.three()
    folder.embed("--model", "others")
    catalog = (folder.path / "catalog.yaml").read_text(encoding="utf-8")
    (folder.path / "catalog.yaml").write_text(catalog.replace("identity: other", "identity: third"), encoding="utf-8")
    refused = folder.call("search", "mail", "--store", "sqlite:///docs.db", "--catalog", "catalog.yaml")
    assert refused.exit_code == 2
    assert folder.call(*_command_in(refused)).exit_code == 0
    assert folder.search("mail", "-k", "1")[0]["id"] == "t2"


def _command_in(refused: Result) -> list[str]:
    program, *words = shlex.split(re.findall(r"`(interlock .*?)`", refused.stderr)[-1])
    assert program == "interlock"
    return words


def test_re_embedding_takes_an_input_along(folder: Folder) -> None:
    folder.three()
    folder.embed()
    folder.lines({"id": "t0", "text": TEXTS[0]}, {"id": "new", "text": "Draw a card."})
    result = folder.embed("--re-embed", "--model", "others")
    assert result.exit_code == 0
    assert "4 of 5 documents embedded" in result.stderr  # three that were stored, and the new line
    assert "holds 4 documents with vectors of others" in result.stderr
    nothing = folder.call("embed", "--store", "sqlite:///docs.db", "--catalog", "catalog.yaml")
    assert nothing.exit_code == 2
    assert "nothing to embed: name an --input, or --re-embed" in nothing.stderr


def test_a_refused_document_is_named_by_its_line(folder: Folder) -> None:
    folder.lines({"id": 1, "text": "short"}, {"id": 2, "text": "A text of many words. " * 5})
    result = folder.embed("--model", "others")
    assert result.exit_code == 1
    assert "1 of 2 documents embedded" in result.stderr
    assert re.search(r"docs\.jsonl line 2: has about \d+ tokens where 12 are allowed", result.stderr)
    cut = folder.embed("--model", "others", "--truncate")
    assert cut.exit_code == 0
    assert "1 of 2 documents embedded" in cut.stderr


def test_of_many_refused_documents_the_first_are_named_and_the_others_counted(folder: Folder) -> None:
    folder.lines({"text": "short"}, *({"text": f"A text of many words, the {at}th. " * 5} for at in range(23)))
    result = folder.embed("--model", "others")
    assert result.exit_code == 1
    assert "; 23 refused" in result.stderr
    assert len(re.findall(r"^  docs\.jsonl line \d+: has about", result.stderr, re.MULTILINE)) == 20
    assert "\n  and 3 more\n" in result.stderr


def test_a_store_that_goes_away_at_the_end_is_not_said_to_be_empty(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(self: SqliteCollection, *, replacement: bool = False) -> None:
        monkeypatch.setattr(SqliteCollection, "info", gone)
        raise StoreError("the store has gone")

    monkeypatch.setattr(SqliteCollection, "index", gone)
    folder.three()
    result = folder.embed()
    assert result.exit_code == 2
    assert result.stderr.startswith("3 of 3 documents embedded")
    assert "Nothing was stored" not in result.stderr
    assert "interlock: the store has gone" in result.stderr


def test_the_cap_stops_it_and_the_command_goes_on(folder: Folder) -> None:
    folder.many(100)
    result = folder.embed("--max-cost", "0.0004")
    assert result.exit_code == 1
    stored = int(re.match(r"(\d+) of 100 documents", result.stderr)[1])  # type: ignore[index]
    assert 0 < stored < 100
    assert "Stopped at the cost cap: --max-cost" in result.stderr
    again = re.search(r"(\d+) are left\. Go on with: interlock (.*)", result.stderr)
    assert again is not None
    assert int(again[1]) == 100 - stored
    folder.call(*shlex.split(again[2]), "--max-cost", "1")
    assert len(folder.search("Number", "-k", "200")) == 100


def test_a_limit_is_kept(folder: Folder) -> None:
    folder.many(30)
    assert "7 of 7 documents embedded" in folder.embed("--limit", "7").stderr
    assert len(folder.search("Number", "-k", "200")) == 7


def test_the_command_that_goes_on_has_every_option() -> None:
    given = EmbedOptions(
        store="sqlite:///my docs.db",
        input=Path("my docs.jsonl"),
        field="body",
        id_field="sku",
        collection="my notes",
        model="words",
        re_embed=True,
        truncate=True,
        skip_bad=True,
        max_cost="1",
        limit=7,
        catalog=Path("my catalog.yaml"),
        records="sqlite:///calls.db",
    )
    command = get_command(app).commands["embed"]  # type: ignore[attr-defined]
    said = command.make_context("embed", shlex.split(given.again())[2:]).params
    for each in fields(given):
        assert said[each.name] == getattr(given, each.name), each.name


def test_ctrl_c_loses_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.many(3_000)
    progress, told = EmbedRun._progress, []

    def interrupted(self: EmbedRun, totals: Any) -> None:
        progress(self, totals)
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(totals.stored)

    monkeypatch.setattr(EmbedRun, "_progress", interrupted)
    stopped = folder.embed()
    assert stopped.exit_code == 130
    assert "Stopped by Ctrl-C." in stopped.stderr
    stored = told[-1]
    assert 0 < stored < 3_000
    assert f"The collection documents holds {stored:,} documents" in stopped.stderr
    assert f"{3_000 - stored:,} are left. Go on with: interlock embed --input docs.jsonl" in stopped.stderr
    rest = folder.embed()
    assert re.match(rf"{3_000 - stored:,} of 3,000 documents embedded, [\d,]+ a second;", rest.stderr)
    assert f"{stored:,} were stored before" in rest.stderr


def test_ctrl_c_while_all_is_embedded_again_goes_on_there(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.many(3_000)
    folder.embed()
    progress, told = EmbedRun._progress, []

    def interrupted(self: EmbedRun, totals: Any) -> None:
        progress(self, totals)
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(totals.stored)

    again = ("embed", "--store", "sqlite:///docs.db", "--re-embed", "--model", "others", "--catalog", "catalog.yaml")
    with monkeypatch.context() as patch:
        patch.setattr(EmbedRun, "_progress", interrupted)
        stopped = folder.call(*again)
    stored = told[-1]
    assert stopped.exit_code == 130
    assert f"{3_000 - stored:,} are left. Go on with: interlock embed --store sqlite:///docs.db" in stopped.stderr
    assert "holds 3,000 documents with vectors of words" in stopped.stderr
    assert folder.search("Number 7.", "-k", "1")[0]["id"] == "7"
    capped = folder.call(*again[:-4], "--model", "words", "--catalog", "catalog.yaml", "--max-cost", "0.0004")
    assert capped.exit_code == 1  # a third model: what was begun is dropped
    left = re.search(r"(\d+|\d,\d+) of 3,000 documents.*\n.*\n.*\n([\d,]+) are left", capped.stderr)
    assert left is not None
    assert sum(int(number.replace(",", "")) for number in left.groups()) == 3_000
    done = folder.call(*again)
    assert done.exit_code == 0
    assert "left" not in done.stderr
    assert "holds 3,000 documents with vectors of others" in done.stderr


KILLED = """
import os, signal
from interlock.runtime.cli.embed import EmbedOptions, EmbedRun
def progress(self, totals):
    if totals.stored >= 500:
        os.kill(os.getpid(), signal.SIGKILL)
EmbedRun._progress = progress
"""


def test_a_killed_process_has_stored_what_it_paid_for_and_two_at_once_do_not_mix(folder: Folder) -> None:
    folder.many(1_000)
    killed = folder.process(KILLED)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    two = [folder.process(), folder.process()]
    ends = [one.communicate(timeout=60) for one in two]
    assert [one.returncode for one in two] == [0, 0], ends
    for _, told in ends:
        before = re.search(r"([\d,]+) were stored before", told)
        assert before is not None
        assert int(before[1].replace(",", "")) >= 500
    found = folder.search("Number 7.", "-k", "2000")
    assert sorted(int(one["id"]) for one in found) == list(range(1_000))
    assert found[0]["text"] == "Number 7."


def test_the_same_commands_work_on_postgres(folder: Folder, postgres: PostgresTestServer) -> None:
    store = postgres.fresh()
    folder.three()
    assert "3 of 3 documents embedded" in folder.embed(store=store).stderr
    assert "3 were stored before" in folder.embed(store=store).stderr
    assert folder.search(TEXTS[2], "-k", "1", store=store)[0]["id"] == "t2"
    empty = folder.call("search", "What?", "--store", postgres.fresh(), "--catalog", "catalog.yaml")
    assert (empty.exit_code, "there is no store" in empty.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--store", "sqlite:///none.db"), "there is no store sqlite:///none.db"),
        (("--store", "sqlite:///docs.db", "--collection", "other"), "has no collection other"),
        (("--store", "redis://docs"), "cannot be read|of a kind"),
    ],
)
def test_a_search_of_what_is_not_there_is_one_sentence(folder: Folder, words: tuple[str, ...], told: str) -> None:
    folder.three()
    folder.embed()
    result = folder.call("search", "What?", *words, "--catalog", "catalog.yaml")
    assert result.exit_code == 2
    assert re.search(told, result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_is_not_there_leaves_no_store(folder: Folder) -> None:
    folder.three()
    assert folder.embed("--model", "none").exit_code == 2
    assert sorted(path.name for path in folder.path.iterdir()) == ["catalog.yaml", "docs.jsonl"]


def test_a_snippet_shows_where_the_words_stand() -> None:
    text = "An opening of no interest at all. " * 5 + "Then it parses command line arguments. " + "More. " * 40
    shown = snippet(text, "Command line?")
    assert "command line" in shown
    assert shown.startswith("... ")
    assert shown.endswith(" ...")
    assert len(shown) <= SNIPPET + 8
    assert snippet("short\n text", "x") == "short text"
    assert snippet("y" * 300, "x") == "y" * SNIPPET + " ..."
