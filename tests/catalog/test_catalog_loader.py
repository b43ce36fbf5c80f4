"""The strict reading of a catalog file: every mistake is an error with file, line and key."""

from __future__ import annotations

import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from interlock.catalog import Catalog, Depth, Grade, Input, Kind, Limits, Status
from interlock.errors import CatalogError

WHOLE = """\
providers:
  anthropic-direct: {credential: anthropic-api-key, timeout_s: 600}
  simulated:
pools:
  sonnet: {rpm: 1000, input_tpm: 2000000, output_tpm: 400000, burst_s: 60, fixed: true}
models:
  - id: sonnet
    identity: claude-sonnet
    kind: chat
    grade: MEDIUM
    provider: anthropic-direct
    wire_model_id: claude-sonnet-5
    context_window: 1000000
    max_output_tokens: 64000
    inputs: [text, image, document]
    thinking: {mode: budget, budgets: {quick: 2000}}
    limits: {pool: sonnet}
    accounting: {output: expected, cache_reads: free}
    prices: {currency: USD, per: 1000000, input: 3.00, output: 15.00, cache_read: 0.30, cache_write: 3.75,
             as_of: 2026-11-01}
    base_url: null
    fallbacks: [backup]
    status: open
    parameters: {temperature: 0.5, seed: 7, stop: ["\\n"]}
    provider_options: {deep: {a: true, b: null, c: [1, text]}}
  - id: backup
    grade: SMALL
    provider: simulated
    wire_model_id: 2024-01-01
    limits: fixed
  - id: vectors
    kind: embeddings
    provider: simulated
    wire_model_id: v
    dimensions: 256
pins: {SMALL: [backup], MEDIUM: sonnet, embeddings: vectors}
embedding_width: 1024
"""


def test_a_whole_file_is_read_into_typed_values() -> None:
    catalog = Catalog.load(WHOLE)
    entry = catalog.entry("sonnet")
    assert (entry.grade, entry.kind, entry.status) == (Grade.MEDIUM, Kind.CHAT, Status.OPEN)
    assert entry.inputs == {Input.TEXT, Input.IMAGES, Input.DOCUMENTS}
    assert entry.thinking.budgets == {Depth.QUICK: 2000}
    assert entry.prices is not None
    assert (entry.prices.input, entry.prices.as_of) == (Decimal("3.00"), date(2026, 11, 1))
    assert entry.base_url is None
    assert entry.parameters == {"temperature": 0.5, "seed": 7, "stop": ["\n"]}
    assert entry.provider_options == {"deep": {"a": True, "b": None, "c": [1, "text"]}}
    assert isinstance(entry.parameters["seed"], int)
    assert catalog.limits_of(entry) == ("sonnet", catalog.pools["sonnet"])
    assert catalog.pools["sonnet"].fixed is True
    assert catalog.pins == {Grade.SMALL: ("backup",), Grade.MEDIUM: ("sonnet",), "embeddings": ("vectors",)}
    assert catalog.provider("anthropic-direct").credential == "anthropic-api-key"
    assert catalog.provider("simulated").timeout_s == 600.0


def test_the_word_fixed_stands_for_limits_that_headers_do_not_change() -> None:
    backup = Catalog.load(WHOLE).entry("backup")
    assert backup.limits == Limits(fixed=True)
    assert Catalog.load(WHOLE).limits_of(backup) == ("model:backup", backup.limits)


def test_defaults_hold_for_a_providers_entries_and_an_entrys_own_fields_win() -> None:
    text = """\
defaults:
  p: {structured: native, accounting: {output: expected}, timeout_s: 5}
models:
  - {id: a, grade: SMALL, provider: p, wire_model_id: w}
  - {id: b, grade: SMALL, provider: p, wire_model_id: w, structured: tool, timeout_s: null}
  - {id: c, grade: SMALL, provider: q, wire_model_id: w}
"""
    catalog = Catalog.load(text)
    assert (catalog.entry("a").structured, catalog.entry("a").timeout_s) == ("native", 5.0)
    assert catalog.entry("a").accounting.output == "expected"
    assert (catalog.entry("b").structured, catalog.entry("b").timeout_s) == ("tool", None)
    assert (catalog.entry("c").structured, catalog.entry("c").timeout_s) == ("prompt", None)
    assert catalog.defaults["p"]["structured"] == "native"


def test_an_error_in_what_defaults_add_names_the_entry(refused) -> None:
    error = refused("""\
defaults: {p: {max_output_tokens: 500}}
models:
  - {id: a, grade: SMALL, provider: p, wire_model_id: w, context_window: 400}
""")
    assert (error.line, error.key) == (3, "models[0]")
    assert "max_output_tokens 500 is above the window 400" in str(error)


def test_a_parameter_that_the_model_refuses_cannot_be_set(refused) -> None:
    error = refused("""\
models:
  - {id: a, grade: SMALL, provider: p, wire_model_id: w, parameters: {seed: 1}, unsupported: [seed]}
""")
    assert "seed is set in parameters and listed as unsupported" in str(error)


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-api03-0123456789", "AIzaSyA0123456789", "AKIAIOSFODNN7EXAMPLE", "has a space", "x" * 70, "a=b", "$KEY"],
)
def test_a_secret_in_place_of_a_credentials_id_is_refused_and_not_shown(refused, secret: str) -> None:
    for text in (
        f"providers: {{p: {{credential: '{secret}'}}}}\nmodels: []\n",
        f"models:\n  - {{id: m, grade: SMALL, provider: p, wire_model_id: w, credential: '{secret}'}}\n",
    ):
        error = refused(text)
        assert "must be the id of a credential" in str(error)
        assert (error.key or "").endswith(".credential")
        assert secret not in str(error)


def test_defaults_of_a_provider_that_nobody_has_are_an_error(refused) -> None:
    error = refused(
        "defaults: {simulatd: {}}\nmodels:\n  - {id: m, grade: SMALL, provider: simulated, wire_model_id: w}\n"
    )
    assert (error.line, error.key) == (1, "defaults.simulatd")
    assert "did you mean simulated?" in str(error)


def test_what_belongs_to_an_entry_is_refused_in_the_defaults(refused) -> None:
    error = refused("defaults:\n  p: {wire_model_id: w}\nmodels: []\n")
    assert (error.line, error.key) == (2, "defaults.p.wire_model_id")


@pytest.mark.parametrize(
    ("line", "key", "says"),
    [
        # B32, numbers: what YAML 1.1 would misread is named, with the way to write it.
        ("prices: {input: 3e-6}", "prices.input", "3e-6 is text to YAML, not a number: write 0.000003"),
        ("prices: {input: 1e6}", "prices.input", "write 1000000"),
        ("prices: {input: 1.5e3}", "prices.input", "write 1500"),
        ("prices: {input: 1e999}", "prices.input", "text to YAML"),
        ("prices: {input: .nan}", "prices.input", "not a finite number"),
        ("prices: {input: .inf}", "prices.input", "not a finite number"),
        ("prices: {input: -.Inf}", "prices.input", "not a finite number"),
        ("prices: {input: NaN}", "prices.input", "not a finite number"),
        ("prices: {input: -1}", "prices.input", "greater than or equal to 0"),
        ("prices: {input: '3'}", "prices.input", "must be a number, not text: write 3 without quotes"),
        ("prices: {input: no}", "prices.input", "must be a number, not no"),
        ("prices: {input: $3}", "prices.input", "must be a number"),
        ("prices: {input: '${PRICE}'}", "prices.input", "placeholders"),
        ("prices: {input: [3]}", "prices.input", "single value"),
        ("prices: {input: }", "prices.input", "must have a value"),
        ("prices: 3", "prices", "must be a mapping"),
        ("context_window: 200k", "context_window", "write 200000"),
        ("context_window: 1M", "context_window", "write 1000000"),
        ("context_window: 012", "context_window", "octal: write 12"),
        ("context_window: 1_000", "context_window", "underscores, which YAML readers treat differently: write 1000"),
        ("context_window: 1:30", "context_window", "base-60"),
        ("context_window: 0x10", "context_window", "not decimal"),
        ("context_window: 0o17", "context_window", "not decimal"),
        ("context_window: 1,000", "context_window", ""),
        ("context_window: 9223372036854775808", "context_window", "above 9223372036854775807"),
        ("context_window: 1.5", "context_window", "whole number"),
        ("context_window: 0", "context_window", "greater than or equal to 1"),
        ("context_window: 2026-11-30", "context_window", "must be a number"),
        ("context_window: 1.0e+6000", "context_window", "out of range"),
        ("timeout_s: 0", "timeout_s", "greater than 0"),
        # Words.
        ("identity: no", "identity", "no without quotes is a yes-or-no word to YAML: write 'no'"),
        ("identity: ON", "identity", "yes-or-no"),
        ("identity: true", "identity", "yes-or-no"),
        ("fallbacks: [no]", "fallbacks[0]", "yes-or-no"),
        ("base_url: ${HOST}", "base_url", "the catalog knows no ${...} placeholders"),
        ("base_url: http://${HOST}/v1", "base_url", "placeholders"),
        ("limits: {fixed: yes}", "limits.fixed", "must be true or false, not 'yes'"),
        ("limits: {fixed: 'true'}", "limits.fixed", "true or false"),
        ("limits: {as_of: 30.11.2026}", "limits.as_of", "a date such as 2026-11-30"),
        ("limits: {as_of: 2026-13-01}", "limits.as_of", "a date such as 2026-11-30"),
        ("provider_options: {x: no}", "provider_options.x", "write true, false or 'no'"),
        ("provider_options: {x: 1e6}", "provider_options.x", "write 1000000; or put it in quotes"),
        ("provider_options: {x: 012}", "provider_options.x", "octal"),
        # Names.
        ("ouput_price: 3", "ouput_price", "unknown field"),
        ("max_ouput_tokens: 3", "max_ouput_tokens", "unknown field (did you mean max_output_tokens?)"),
        ("limits: {rmp: 3}", "limits.rmp", "unknown field (did you mean rpm?)"),
        ("prices: {input: 1, ouput: 3}", "prices.ouput", "unknown field (did you mean output?)"),
        ("status: opne", "status", "must be one of open, disabled, deprecated, unlisted, unreachable, not 'opne'"),
        ("inputs: [images]", "inputs[0]", "did you mean image?"),
        ("inputs: text", "inputs", "must be a list"),
        ("accounting: {output: expcted}", "accounting.output", "did you mean expected?"),
        ("thinking: {budgets: {fast: 3}}", "thinking.budgets.fast", "must be one of immediate"),
        ("prices: {input: 1, currency: usd}", "prices.currency", "three capital letters, such as USD, not 'usd'"),
        ("fallbacks: [a, a]", "fallbacks[1]", "twice"),
        ("? [a, b]\n    : 3", None, "a key must be a plain word"),
        ("identity: !!str x", None, "YAML tag"),
        ("identity: !!python/object:os.system x", None, "YAML tag"),
        ("<<: 3", None, "<< takes a mapping"),
        ("parameters: {temprature: 1}", "parameters", "temprature is none of seed, stop, temperature, top_p"),
        ("base_url: http://[", "base_url", "is no address"),
        ("base_url: http://host:99999", "base_url", "is no address"),
        ("base_url: 127.0.0.1:8080", "base_url", "begins with neither http:// nor https://"),
        ("base_url: ftp://host/v1", "base_url", "begins with neither http:// nor https://"),
        ("base_url: https://", "base_url", "has no host"),
        ("base_url: http://my host/v1", "base_url", "holds a character that no address has"),
        ("base_url: http://user:pass@host/", "base_url", "holds a user or a password"),
        ("base_url: https://host/?key=abc", "base_url", "holds a query or a fragment"),
        # Parts that exclude each other.
        ("limits: {pool: x, rpm: 3}", "limits", "pool 'x' already has limits: move rpm to that pool"),
        ("limits: {pool: x, fixed: true}", "limits", "move fixed"),
        ("limits: {pool: x}", "limits.pool", "there is no pool x"),
        ("fallbacks: [m]", "fallbacks[0]", "cannot fall back to itself"),
        ("fallbacks: [n]", "fallbacks[0]", "there is no entry n"),
    ],
)
def test_b32_a_field_is_the_evident_value_or_an_error_with_file_line_and_key(
    refused_entry, line: str, key: str | None, says: str
) -> None:
    error = refused_entry(line)
    assert error.file == "catalog.yaml"
    assert error.line == 6
    if key is not None:
        assert error.key == f"models[0].{key}"
    assert says in str(error)
    assert str(error).startswith("catalog.yaml:6: ")


@pytest.mark.parametrize(
    "word", ["1:30", "2024-01-01", "012", "1_000", "1e6", "3e-6", "12", "0x1F", ".inf", "y", "1.10"]
)
def test_b32_ids_keep_their_characters(word: str) -> None:
    text = f"models:\n  - {{id: {word}, grade: SMALL, provider: p, wire_model_id: {word}}}\npins: {{SMALL: {word}}}\n"
    catalog = Catalog.load(text)
    assert list(catalog.entries) == [word]
    assert catalog.entry(word).wire_model_id == word
    assert catalog.pins[Grade.SMALL] == (word,)


@pytest.mark.parametrize(
    ("written", "value"), [("0.10", "0.10"), ("3", "3"), (".5", "0.5"), ("1.0e-6", "0.000001"), ("0", "0")]
)
def test_b32_plain_numbers_are_exact(written: str, value: str) -> None:
    text = f"models:\n  - {{id: m, grade: SMALL, provider: p, wire_model_id: w, prices: {{input: {written}}}}}\n"
    prices = Catalog.load(text).entry("m").prices
    assert prices is not None
    assert prices.input == Decimal(value)
    assert isinstance(prices.input, Decimal)


@pytest.mark.parametrize("word", ["no", "on", "true", "null", "012", ""])
def test_quotes_make_any_word_text(word: str) -> None:
    text = f"models:\n  - {{id: m, grade: SMALL, provider: p, wire_model_id: w, identity: '{word}'}}\n"
    assert Catalog.load(text).entry("m").identity == word


def test_b32_the_same_model_twice_is_an_error_naming_both_lines(refused) -> None:
    error = refused("""\
models:
  - {id: a, grade: SMALL, provider: p, wire_model_id: w}
  - {id: b, grade: SMALL, provider: p, wire_model_id: w}
  - {id: a, grade: SMALL, provider: p, wire_model_id: v}
""")
    assert (error.line, error.key) == (4, "models[2].id")
    assert "a is written twice: first on line 2" in str(error)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("models: []\nmodels: []\n", 2, "models"),
        ("pools:\n  a: {rpm: 1}\n  a: {rpm: 2}\nmodels: []\n", 3, "pools.a"),
        ("models:\n- id: a\n  grade: SMALL\n  provider: p\n  wire_model_id: w\n  id: b\n", 6, "models[0].id"),
        ("models: []\npins: {SMALL: a, SMALL: b}\n", 2, "pins.SMALL"),
    ],
)
def test_b32_a_duplicate_key_is_an_error(refused, text: str, line: int, key: str) -> None:
    error = refused(text)
    assert (error.line, error.key) == (line, key)
    assert "written twice" in str(error)


def test_b32_a_key_through_a_merge_and_by_itself_is_a_duplicate(refused) -> None:
    error = refused("""\
models:
  - &a {id: a, grade: SMALL, provider: p, wire_model_id: w}
  - <<: *a
    id: b
""")
    assert error.key == "models[1].id"
    assert "written twice" in str(error)


def test_merge_keys_and_aliases_without_a_clash_work() -> None:
    catalog = Catalog.load("""\
pools: {shared: &tight {rpm: 10, tpm: 100}, other: *tight}
models:
  - {id: a, <<: &common {grade: SMALL, provider: p}, wire_model_id: w}
  - {id: b, <<: *common, wire_model_id: v}
""")
    assert catalog.entry("b").provider == "p"
    assert catalog.pools["other"] == catalog.pools["shared"]


def test_b32_anchors_that_multiply_are_bounded(refused) -> None:
    lines = ["models:", "  - id: m", "    provider_options:", "      a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"      a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)]
    assert "aliases stand for more than" in str(refused("\n".join(lines)))


def test_merges_that_multiply_are_bounded(refused) -> None:
    lines = ["models:", "  - &a0 {x: 1}"]
    lines += [f"  - &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert refused("\n".join(lines)).file == "catalog.yaml"


def test_an_alias_of_itself_and_a_deep_tree_are_errors(refused) -> None:
    assert refused("models: &a [*a]\n").file == "catalog.yaml"
    assert "deep" in str(refused("models: " + "[" * 3000 + "]" * 3000))
    assert "deep" in str(refused("models:\n- id: m\n  provider_options: &a {a: *a}\n"))
    assert "<< takes a mapping" in str(refused("models:\n- &a {<<: *a}\n"))


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n", "null\n"])
def test_b32_an_empty_file_is_an_error(refused, text: str) -> None:
    error = refused(text)
    assert error.file == "catalog.yaml"
    assert "empty" in str(error) or "must be a mapping" in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n", "must be a mapping"),
        ("a: [\n", "not YAML"),
        ("models: []\n---\nmodels: []\n", "single document"),
        ("pins: {}\n", "has no `models:`"),
        ("models: {a: 1}\n", "must be a list"),
        ("models: []\nmodel: []\n", "unknown section (did you mean models?)"),
        ("models:\n  - 3\n", "must be a mapping"),
        ("models:\n  - {id: m, grade: SMALL, wire_model_id: w}\n", "models[0].provider: is missing"),
        ("models:\n  - {id: m, provider: p, wire_model_id: w}\n", "a chat model needs a grade"),
        ("models:\n  - {id: m, kind: decision, grade: SMALL, provider: p, wire_model_id: w}\n", "only chat models"),
        ("models:\n  - {id: m, grade: CEILING, provider: p, wire_model_id: w}\n", "asked for, not carried"),
        ("models:\n  - {id: m, kind: embeddings, provider: p, wire_model_id: w}\n", "must state its native width"),
        ("models: []\nembedding_width: 0\n", "at least 1"),
        ("models: []\npools: {a: {pool: b}}\n", "a pool cannot draw on another pool"),
        ("models: []\npools: []\n", "must be a mapping"),
        ("models: []\ndefaults: {p: {}}\n", "no entry has this provider"),
        ("models: []\ndefaults: []\n", "must be a mapping"),
        (
            "providers: {anthropic: }\nmodels:\n  - {id: m, grade: SMALL, provider: antropic, wire_model_id: w}\n",
            "there is no provider antropic (did you mean anthropic?)",
        ),
        ("models: \x00\n", "not YAML"),
        (b"models: \xff\n", "not UTF-8"),
        ('models: "\\UFFFFFFFF"\n', ""),
    ],
)
def test_a_file_of_the_wrong_form_is_an_error(refused, text: str | bytes, says: str) -> None:
    assert says in str(refused(text))


@pytest.mark.parametrize(
    ("pin", "key", "says"),
    [
        ("MEDIUM: small", "pins.MEDIUM[0]", "small is SMALL, below MEDIUM: a grade is a floor"),
        ("SMALL: smal", "pins.SMALL[0]", "there is no entry smal (did you mean small?)"),
        ("SMALL: [small, small]", "pins.SMALL[1]", "twice"),
        ("SMALL: vectors", "pins.SMALL[0]", "vectors is a model for embeddings, and this pin is for chat"),
        ("embeddings: small", "pins.embeddings[0]", "this pin is for embeddings"),
        ("SMALL: closed", "pins.SMALL[0]", "only an open entry can be pinned"),
        ("MEDUIM: small", "pins.MEDUIM", "did you mean MEDIUM?"),
        ("CEILING: small", "pins.CEILING[0]", "below LARGE"),
    ],
)
def test_a_pin_that_breaks_a_rule_is_an_error(refused, pin: str, key: str, says: str) -> None:
    error = refused(f"""\
models:
  - {{id: small, grade: SMALL, provider: p, wire_model_id: w}}
  - {{id: large, grade: LARGE, provider: p, wire_model_id: w}}
  - {{id: closed, grade: SMALL, provider: p, wire_model_id: w, status: disabled}}
  - {{id: vectors, kind: embeddings, provider: p, wire_model_id: w, dimensions: 8}}
pins: {{{pin}}}
""")
    assert (error.line, error.key) == (6, key)
    assert says in str(error)


@pytest.mark.parametrize("status", ["unlisted", "unreachable"])
def test_a_pin_stays_when_discover_has_closed_its_entry(status: str) -> None:
    entry = f"{{id: m, grade: SMALL, provider: p, wire_model_id: w, status: {status}}}"
    assert Catalog.load(f"models:\n  - {entry}\npins: {{SMALL: m}}\n").pins


def test_a_fallback_is_of_the_same_kind(refused) -> None:
    error = refused("""\
models:
  - {id: m, grade: SMALL, provider: p, wire_model_id: w, fallbacks: [vectors]}
  - {id: vectors, kind: embeddings, provider: p, wire_model_id: w, dimensions: 8}
""")
    assert (error.line, error.key) == (2, "models[0].fallbacks[0]")
    assert "vectors is a model for embeddings, not for chat" in str(error)


def test_two_open_embedding_entries_of_different_width_are_an_error(refused) -> None:
    text = """\
models:
  - {id: a, kind: embeddings, provider: p, wire_model_id: w, dimensions: 3072, requested_dimensions: 1024}
  - {id: b, kind: embeddings, provider: p, wire_model_id: w, dimensions: 1536, requested_dimensions: 512%s}
"""
    error = refused(text % "")
    assert (error.line, error.key) == (3, "models[1].requested_dimensions")
    assert "asks for 512 dimensions and embedding_width is 1024" in str(error)
    assert Catalog.load(text % ", status: disabled").embedding_width == 1024


def test_more_dimensions_than_a_model_has_cannot_be_asked_for(refused) -> None:
    error = refused("""\
models:
  - {id: a, kind: embeddings, provider: p, wire_model_id: w, dimensions: 256, requested_dimensions: 1024}
""")
    assert "of a model with 256" in str(error)


def test_every_mistake_of_a_file_is_listed_in_the_order_of_its_lines(refused) -> None:
    error = refused("""\
models:
  - {id: a, grade: SMAL, provider: p, wire_model_id: w}
  - {id: b, grade: SMALL, provider: p, wire_model_id: w, colour: red}
pins: {TINY: a}
""")
    assert (error.line, error.key) == (2, "models[0].grade")
    assert [line.split(" ")[0] for line in error.problems] == ["catalog.yaml:2:", "catalog.yaml:3:", "catalog.yaml:4:"]
    assert str(error).splitlines() == list(error.problems)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.problems, again.line) == (str(error), error.problems, error.line)


def test_a_file_with_endless_mistakes_stops_at_a_hundred(refused) -> None:
    text = "models:\n" + "".join(f"  - {{id: m{n}, wrong: 1}}\n" for n in range(500))
    assert len(refused(text).problems) == 100


def test_a_path_is_read_and_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("models:\n  - {id: m, grade: SMALL, provider: p, wire_model_id: w}\n", encoding="utf-8-sig")
    assert list(Catalog.load(path).entries) == ["m"]
    assert list(Catalog.load(str(path)).entries) == ["m"]
    path.write_text("models:\n  - {id: m}\n")
    with pytest.raises(CatalogError) as caught:
        Catalog.load(str(path))
    assert (caught.value.file, caught.value.line) == (str(path), 2)


@pytest.mark.parametrize("name", ["absent.yaml", ".", "no\x00name"])
def test_a_path_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(CatalogError) as caught:
        Catalog.load(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)
    assert len(str(caught.value).splitlines()) == 1
