"""`interlock catalog discover` and `interlock catalog check --credentials`, against the loopback provider."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog import Catalog, Grade
from interlock.catalog.words import Status
from interlock.clients.simulator import SimulatedProvider

KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-a-secret-of-anthropic",
    "OPENAI_API_KEY": "sk-a-secret-key-of-openai",
    "GEMINI_API_KEY": "AIza-a-secret-key-of-google-0123456789",
    "AWS_ACCESS_KEY_ID": "AKIAAWSACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": "a-secret-access-key-of-aws",
    "AWS_REGION": "eu-west-1",
}
FILE = """\
# Ours.
providers:
  anthropic-direct: {{credential: anthropic-api-key, base_url: "{url}"}}
  openai: {{credential: openai-api-key, base_url: "{url}/v1"}}
  openai-chat-completions: {{credential: openai-api-key, base_url: "{url}/v1"}}
  gemini: {{credential: gemini-api-key, base_url: "{url}"}}
  bedrock-converse: {{credential: aws, base_url: "{url}"}}
  anthropic-bedrock: {{credential: aws, base_url: "{url}"}}
  anthropic-bedrock-mantle: {{credential: aws, base_url: "{url}/anthropic"}}
  openai-compatible: {{credential: openai-api-key, base_url: "{url}/v1"}}
models:
  - id: haiku   # the quick one
    grade: SMALL
    provider: anthropic-direct
    wire_model_id: claude-haiku-4-5
    prices: {{input: 1.00, output: 5.00}}

  - {{id: left, grade: SMALL, provider: anthropic-direct, wire_model_id: claude-left}}  # gone soon
  - {{id: shut, grade: SMALL, provider: anthropic-direct, wire_model_id: claude-shut, status: disabled}}
# The end of the models.
pins: {{SMALL: [left, haiku]}}
"""


@pytest.fixture
def served(folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedProvider]:
    """A provider that knows these keys, and a catalog whose providers are all at its address."""
    monkeypatch.setenv("HOME", str(folder.path))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    known = {*KEYS.values(), "none"}
    with SimulatedProvider(models=["claude-haiku-4-5-20251001", "claude-left"], keys=known).in_thread() as running:
        (folder.path / "catalog.yaml").write_text(FILE.format(url=running.base_url), encoding="utf-8")
        yield running


def lists(provider: SimulatedProvider, *names: str) -> None:
    provider._app._serving.models = names


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def no_secret(text: str) -> None:
    for name, value in KEYS.items():
        assert name == "AWS_REGION" or value not in text


def discover(folder: Any, *words: str, code: int = 0) -> str:
    done = folder.call("catalog", "discover", *words)
    assert done.exit_code == code, done.output
    no_secret(done.output)
    return str(done.output)


# Discover.


def test_known_gone_and_new_are_told_apart(folder: Any, served: SimulatedProvider) -> None:
    lists(served, "claude-haiku-4-5-20251001", "claude-next", "claude-shut")
    before = (folder.path / "catalog.yaml").read_bytes()
    shown = rows(discover(folder, "catalog.yaml", "--provider", "anthropic-direct"))
    assert ["anthropic-direct", "haiku", "claude-haiku-4-5", "listed"] in shown
    assert ["anthropic-direct", "left", "claude-left", "no", "longer", "listed"] in shown
    assert ["anthropic-direct", "shut", "claude-shut", "listed", "(disabled", "here)"] in shown
    assert ["anthropic-direct", "claude-next", "new"] in shown
    assert (folder.path / "catalog.yaml").read_bytes() == before


def test_every_provider_is_asked_once_and_what_two_keys_share_is_new_once(folder: Any, served: Any) -> None:
    lists(served, "gpt-7", "eu.anthropic.claude-7")
    discover(folder, "--write", "catalog.yaml")
    made: dict[str, set[str]] = {}
    for entry in Catalog.load(folder.path / "catalog.yaml").entries.values():
        made.setdefault(entry.provider, set()).add(entry.wire_model_id)
    both = {"gpt-7", "eu.anthropic.claude-7"}
    assert made["anthropic-direct"] >= both
    assert made["openai"] == made["gemini"] == both
    assert made["bedrock-converse"] == both | {"anthropic.claude-7"}
    assert made.keys() == {"anthropic-direct", "openai", "gemini", "bedrock-converse"}
    paths = [request.path for request in served.requests]
    assert len(paths) == 10  # eight accounts; Bedrock's two ask twice
    assert sum("inference-profiles" in path for path in paths) == 2


def test_a_file_is_edited_and_nothing_else_in_it(folder: Any, served: Any) -> None:
    lists(served, "claude-haiku-4-5-20251001", "claude-next", "claude-shut")
    file: Path = folder.path / "catalog.yaml"
    file.chmod(0o640)
    before = file.read_text(encoding="utf-8").splitlines()
    shown = discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    assert "catalog.yaml: written: 1 unlisted; 1 new" in shown
    after = file.read_text(encoding="utf-8").splitlines()
    edited = [line for line in before if line not in after]
    assert [line.split(",")[0] for line in edited] == ["  - {id: left"]
    index = after.index("# The end of the models.")
    assert any("status: unlisted}  # gone soon; unlisted since " in line for line in after)
    assert after[index - 5 : index] == [
        "  - id: claude-next", "    grade: MICRO", "    provider: anthropic-direct", "    wire_model_id: claude-next",
        "    named_only: true",
    ]  # fmt: skip
    assert "lowest grade" in after[index - 6]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert folder.names() == {"catalog.yaml", "pipelines_of_test.py"}
    catalog = Catalog.load(file)
    assert catalog.entries["left"].status is Status.UNLISTED
    assert catalog.pins[Grade.SMALL] == ("left", "haiku")


def test_what_is_listed_again_is_open_again_but_only_if_discover_closed_it(folder: Any, served: Any) -> None:
    file: Path = folder.path / "catalog.yaml"
    file.write_text(file.read_text().replace("claude-haiku-4-5\n", "claude-haiku-4-5\n    status: unlisted\n"))
    words = ("--write", "catalog.yaml", "--provider", "anthropic-direct")
    lists(served, "claude-haiku-4-5", "claude-shut")
    discover(folder, *words)
    assert Catalog.load(file).entries["left"].status is Status.UNLISTED
    lists(served, "claude-haiku-4-5", "claude-shut", "claude-left")
    assert "listed again" in discover(folder, *words)
    found = Catalog.load(file).entries
    assert [found[name].status.value for name in ("haiku", "left", "shut")] == ["unlisted", "open", "disabled"]
    assert "discover" not in file.read_text()
    assert "nothing to change" in discover(folder, *words)


def test_a_new_model_that_the_shipped_catalog_knows_has_its_facts(folder: Any, served: Any) -> None:
    lists(served, "claude-haiku-4-5", "claude-left", "claude-opus-5-5")
    discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    shipped = Catalog.default().entry("claude-opus-direct")
    catalog = Catalog.load(folder.path / "catalog.yaml")
    made = catalog.entry("claude-opus-direct")
    for name in (
        "grade",
        "prices",
        "context_window",
        "max_output_tokens",
        "inputs",
        "thinking",
        "structured",
        "accounting",
    ):
        assert getattr(made, name) == getattr(shipped, name), name
    assert catalog.limits_of(made) == Catalog.default().limits_of(shipped)
    assert not made.named_only


def test_models_that_share_limits_share_a_pool_in_the_file(folder: Any, served: Any) -> None:
    """Each with the whole of it for itself would send twice what the account has."""
    shipped = [e for e in Catalog.default().entries.values() if e.limits.pool == "gpt-sol" and e.provider == "openai"]
    others = [e for e in Catalog.default().entries.values() if e.limits.pool == "gpt-sol" and e.provider != "openai"]
    assert shipped
    assert others
    lists(served, *{e.wire_model_id for e in [*shipped, *others]})
    discover(folder, "--write", "catalog.yaml", "--provider", "openai")
    catalog = Catalog.load(folder.path / "catalog.yaml")
    made = [e for e in catalog.entries.values() if e.provider == "openai"]
    assert {e.limits.pool for e in made} == {"gpt-sol"}
    assert catalog.pools == {"gpt-sol": Catalog.default().pools["gpt-sol"]}
    text = (folder.path / "catalog.yaml").read_text(encoding="utf-8")
    assert text.count("Limits: the pool gpt-sol, as shipped. Write your account's there.") == len(made)
    written = text.replace(f"rpm: {catalog.pools['gpt-sol'].rpm:g}", "rpm: 7")
    (folder.path / "catalog.yaml").write_text(written, encoding="utf-8")
    lists(served, *(e.wire_model_id for e in made), "gpt-unheard-of")
    discover(folder, "--write", "catalog.yaml", "--provider", "openai")
    assert Catalog.load(folder.path / "catalog.yaml").pools["gpt-sol"].rpm == 7


def test_another_account_has_a_pool_of_its_own(folder: Any, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECOND_KEY", KEYS["ANTHROPIC_API_KEY"])
    path = folder.path / "catalog.yaml"
    second = "{id: mine, grade: SMALL, provider: anthropic-direct, wire_model_id: x, credential: second-key}"
    text = path.read_text(encoding="utf-8").replace("models:", f"models:\n  - {second}", 1)
    path.write_text(f"pools: {{claude-opus: {{rpm: 9}}}}\n{text}", encoding="utf-8")
    lists(served, "claude-haiku-4-5", "claude-left", "claude-opus-5-5", "x")
    discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    catalog = Catalog.load(path)
    pools = {e.credential: e.limits.pool for e in catalog.entries.values() if e.wire_model_id == "claude-opus-5-5"}
    assert pools == {None: "claude-opus", "second-key": "claude-opus-second-key"}
    assert catalog.pools["claude-opus"].rpm == 9
    assert catalog.pools["claude-opus-second-key"] == Catalog.default().pools["claude-opus"]


def test_a_catalog_in_brackets_takes_what_is_found(folder: Any, served: Any) -> None:
    path = folder.path / "catalog.yaml"
    path.write_text(
        f"""{{"providers": {{"anthropic-direct": {{"base_url": "{served.base_url}"}}}},
 "models": [
   {{"id": "left", "grade": "SMALL", "provider": "anthropic-direct", "wire_model_id": "claude-left"}},  # mine
   {{"id": "gone", "grade": "SMALL", "provider": "anthropic-direct", "wire_model_id": "claude-gone"}}
 ]}}
""",
        encoding="utf-8",
    )
    lists(served, "claude-left", "claude-opus-5-5", "claude-unheard-of")
    discover(folder, "--write", "catalog.yaml")
    catalog = Catalog.load(path)
    assert list(catalog.entries) == ["left", "gone", "claude-opus-direct", "claude-unheard-of"]
    assert catalog.entry("gone").status is Status.UNLISTED
    assert catalog.entry("claude-opus-direct").limits.pool in catalog.pools
    assert "# mine" in path.read_text(encoding="utf-8")
    lists(served, "claude-left", "claude-gone", "claude-opus-5-5", "claude-unheard-of")
    discover(folder, "--write", "catalog.yaml")
    assert Catalog.load(path).entry("gone").status is Status.OPEN


def test_a_model_known_under_another_way_has_its_grade_and_no_price(folder: Any, served: Any) -> None:
    lists(served, "us.anthropic.claude-opus-5-5")
    discover(folder, "--write", "catalog.yaml", "--provider", "bedrock-converse")
    made = Catalog.load(folder.path / "catalog.yaml").entry("us.anthropic.claude-opus-5-5")
    assert made.grade is Catalog.default().entry("claude-opus-bedrock").grade
    assert (made.prices, made.named_only) == (None, True)


def test_a_model_above_the_pinned_ceiling_is_put_in_closed(folder: Any, served: Any) -> None:
    file: Path = folder.path / "catalog.yaml"
    file.write_text(file.read_text().replace("pins: {", "pins: {CEILING: [haiku], "))
    lists(served, "claude-haiku-4-5", "claude-left", "claude-opus-5-5")
    discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    assert Catalog.load(file).entry("claude-opus-direct").status is Status.DISABLED


def test_3000_new_models_are_shown_in_part(folder: Any, served: Any) -> None:
    lists(served, "claude-haiku-4-5", "claude-left", *(f"claude-n{number}" for number in range(3_000)))
    shown = discover(folder, "catalog.yaml", "--provider", "anthropic-direct")
    assert sum(row[-1:] == ["new"] for row in rows(shown)) == 21
    assert "and 2,980 more (--all)" in shown
    assert len(served.requests) == 4


def test_all_that_is_new_is_written(folder: Any, served: Any) -> None:
    lists(served, "claude-haiku-4-5", "claude-left", *(f"claude-n{number}" for number in range(120)))
    shown = discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct", "--all")
    assert "claude-n119" in shown
    assert "120 new" in shown
    assert len(Catalog.load(folder.path / "catalog.yaml").entries) == 123


def test_a_refused_key_marks_nothing_unless_asked_to(folder: Any, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-key-that-nobody-knows")
    words = ("--write", "catalog.yaml", "--provider", "anthropic-direct")
    shown = discover(folder, *words, code=1)
    assert "anthropic-direct: refused: " in shown
    assert "HTTP 401" in shown
    assert "credential 'anthropic-api-key'" in shown or "anthropic-api-key" in shown
    assert "sk-ant-a-key-that-nobody-knows" not in shown
    assert "nothing to change" in shown
    discover(folder, *words, "--mark-unreachable", code=1)
    found = Catalog.load(folder.path / "catalog.yaml").entries
    assert [found[name].status.value for name in ("haiku", "left", "shut")] == [
        "unreachable",
        "unreachable",
        "disabled",
    ]
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
    discover(folder, *words)
    found = Catalog.load(folder.path / "catalog.yaml").entries
    assert [found[name].status.value for name in ("haiku", "left", "shut")] == ["open", "open", "disabled"]


def test_an_empty_list_concludes_nothing(folder: Any, served: Any) -> None:
    lists(served)
    shown = discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    assert "lists no model at all; nothing is concluded" in shown
    assert "nothing to change" in shown


def test_no_key_no_host_and_no_extra_are_each_a_line(folder: Any, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    file: Path = folder.path / "catalog.yaml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file.write_text(
        file.read_text().replace(
            f'gemini-api-key, base_url: "{served.base_url}"', f'gemini-api-key, base_url: "http://127.0.0.1:{port}"'
        )
    )
    monkeypatch.setitem(sys.modules, "boto3", None)
    for name in [name for name in sys.modules if name.startswith(("interlock.clients.providers.", "botocore"))]:
        if (
            name.rpartition(".")[2] in ("aws", "anthropic_bedrock", "bedrock_converse", "bedrock_models")
            or "botocore" in name
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    from interlock.clients.registry import provider_class

    provider_class.cache_clear()
    try:
        shown = discover(folder, "catalog.yaml")
        checked = folder.call("catalog", "check", "catalog.yaml", "--credentials", "--no-ask").stdout
    finally:
        provider_class.cache_clear()
    assert "openai: not asked: set OPENAI_API_KEY" in shown
    assert "gemini: failed: " in shown
    assert "bedrock-converse: not asked: pip install 'interlock[bedrock]'" in shown
    assert "claude-left" in shown
    assert "no: pip install 'interlock[bedrock]'" in checked


def test_a_name_is_shown_as_it_is_and_commands_no_terminal(folder: Any, served: Any) -> None:
    lists(served, "claude-left", "claude-haiku-4-5", "[bold]odd[/bold]", "bell\x1b[2Jring\nline")
    shown = discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    assert "[bold]odd[/bold]" in shown
    assert "\x1b" not in shown
    wires = {entry.wire_model_id for entry in Catalog.load(folder.path / "catalog.yaml").entries.values()}
    assert wires >= {"[bold]odd[/bold]", "bell\x1b[2Jring\nline"}


def test_a_provider_without_an_address_is_a_line(folder: Any) -> None:
    entry = "{id: m, grade: SMALL, provider: openai-compatible, wire_model_id: w}"
    (folder.path / "catalog.yaml").write_text(f"models:\n  - {entry}\n", encoding="utf-8")
    assert "openai-compatible: failed: openai-compatible needs a base_url" in discover(folder, "catalog.yaml", code=1)


def test_a_byte_order_mark_and_a_link_stay(folder: Any, served: Any) -> None:
    file: Path = folder.path / "catalog.yaml"
    target = folder.path / "real.yaml"
    target.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    file.unlink()
    file.symlink_to(target)
    lists(served, "claude-haiku-4-5")
    discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    assert file.is_symlink()
    assert target.read_bytes().startswith(b"\xef\xbb\xbf# Ours.")
    assert Catalog.load(target).entries["left"].status is Status.UNLISTED


def test_what_cannot_be_written_leaves_the_file_as_it_is(folder: Any, served: Any) -> None:
    file: Path = folder.path / "catalog.yaml"
    lists(served, "claude-next")
    assert "has no provider opnai" in discover(folder, "catalog.yaml", "--provider", "opnai", code=2)
    file.write_text(file.read_text() + "\nembedding_width: 0\n")
    assert "embedding_width" in discover(folder, "--write", "catalog.yaml", code=2)
    assert "there is no such file" in discover(folder, "--write", "nowhere.yaml", code=2)
    assert not (folder.path / "nowhere.yaml").exists()
    assert "are two" in discover(folder, "catalog.yaml", "--write", "nowhere.yaml", code=2)


def test_a_file_edited_meanwhile_is_not_overwritten(folder: Any, served: Any) -> None:
    file: Path = folder.path / "catalog.yaml"
    mine = file.read_text() + "# mine\n"

    class Edits:
        """Whoever lists the models finds the file edited."""

        def __iter__(self) -> Iterator[str]:
            file.write_text(mine)
            return iter(("claude-next",))

    served._app._serving.models = Edits()
    shown = discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct", code=2)
    assert "has changed while the providers were asked" in shown
    assert file.read_text() == mine


def test_ctrl_c_ends_it_and_writes_nothing(folder: Any) -> None:
    """A provider that takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file: Path = folder.path / "catalog.yaml"
        file.write_text(FILE.format(url=url))
        before = file.read_bytes()
        code = "import sys; from interlock.runtime.cli import main; sys.exit(main())"
        words = ["catalog", "discover", "--write", "catalog.yaml", "--provider", "anthropic-direct"]
        started = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=folder.path,
            env={**os.environ, **KEYS},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(120)
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(10)
            started.send_signal(signal.SIGINT)
            out, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "interrupted; nothing was written" in err
    assert "Traceback" not in out + err
    assert file.read_bytes() == before
    assert folder.names() == {"catalog.yaml", "pipelines_of_test.py"}


# Check --credentials.


def test_accepted_credentials_are_told_with_where_they_come_from(folder: Any, served: Any) -> None:
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials")
    assert done.exit_code == 0, done.output
    no_secret(done.output)
    found = {row[0]: row for row in rows(done.stdout) if row}
    assert found["anthropic-direct"][1:6] == [
        "anthropic-api-key",
        "environment",
        "variable",
        "ANTHROPIC_API_KEY",
        "accepted:",
    ]
    for name in ("openai", "gemini", "anthropic-bedrock-mantle", "openai-compatible"):
        assert "accepted:" in found[name], name
    assert "AWS_SECRET_ACCESS_KEY" in done.stdout


def test_a_pin_without_a_usable_model_is_exit_1(folder: Any, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-key-that-nobody-knows")
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials")
    assert done.exit_code == 1
    assert "refused: " in done.stdout
    assert "pin SMALL: none of left, haiku can be called" in done.stderr
    assert "that-nobody-knows" not in done.output
    before = len(served.requests)
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials", "--no-ask")
    assert (done.exit_code, len(served.requests)) == (0, before)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials", "--no-ask")
    assert done.exit_code == 1
    assert "no: set ANTHROPIC_API_KEY" in done.stdout


def test_a_pin_to_what_is_not_listed_any_more_is_lacking(folder: Any, served: Any) -> None:
    lists(served, "claude-shut")
    discover(folder, "--write", "catalog.yaml", "--provider", "anthropic-direct")
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials")
    assert done.exit_code == 1
    assert "pin SMALL: none of left, haiku can be called" in done.stderr


def test_a_malformed_credential_is_said_without_its_value(folder: Any, served: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-two\nlines-of-secret")
    done = folder.call("catalog", "check", "catalog.yaml", "--credentials")
    assert done.exit_code == 1
    assert "control" in done.stdout
    assert "lines-of-secret" not in done.output
    assert not any(request.path == "/v1/models" and request.wire == "anthropic" for request in served.requests)


def test_without_the_option_nothing_is_asked(folder: Any, served: Any) -> None:
    assert folder.call("catalog", "check", "catalog.yaml").exit_code == 0
    assert folder.call("catalog", "check").exit_code == 0
    assert served.requests == []
