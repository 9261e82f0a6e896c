from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import Settings, load_settings, without_password
from lakeward.db.database import Database
from lakeward.errors import InvalidSetting
from lakeward.registry.handle import registry_url


def write(folder: Path, text: str, name: str = "settings.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_arguments_win_over_the_environment_over_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, "lease_seconds = 1\nquarantine_seconds = 1\nsweep_after_seconds = 1\n")
    environment = {"LAKEWARD_LEASE_SECONDS": "2", "LAKEWARD_QUARANTINE_SECONDS": "2"}
    settings = load_settings(file, environment, lease_seconds=3)
    assert settings.lease_seconds == 3
    assert settings.quarantine_seconds == 2
    assert settings.sweep_after_seconds == 1
    assert settings.keep_snapshots == Settings().keep_snapshots


def test_a_value_wins_because_it_was_set_and_not_because_it_is_true(tmp_path: Path) -> None:
    file = write(tmp_path, 'quarantine_seconds = 5\ndurable = true\ns3_endpoint = "http://file"\nfooter_limit = 9\n')
    environment = {"LAKEWARD_QUARANTINE_SECONDS": "0", "LAKEWARD_S3_ENDPOINT": ""}
    settings = load_settings(file, environment, durable=False, footer_limit=0)
    assert (settings.quarantine_seconds, settings.s3_endpoint) == (0, "")
    assert (settings.durable, settings.footer_limit) == (False, 0)


def test_an_argument_that_is_none_was_not_given(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, 'token = "t"'), {}, token=None).token == "t"


def test_a_file_s_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, 'registry = "lake/registry.db"\nwarehouse = "s3://bucket/x"\n')
    monkeypatch.chdir("/")
    settings = load_settings(file, {})
    assert settings.registry == str(tmp_path / "lake/registry.db")
    assert settings.warehouse == "s3://bucket/x"


def test_the_working_folder_s_file_is_read_without_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}) == Settings()
    write(tmp_path, "keep_snapshots = 7", "lakeward.toml")
    assert load_settings(environment={}).keep_snapshots == 7


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("ON", True), ("1", True), ("no", False), ("False", False), ("0", False)]
)
def test_words_of_the_environment_become_booleans(text: str, value: bool) -> None:
    assert load_settings(environment={"LAKEWARD_DURABLE": text}).durable is value


@pytest.mark.parametrize(
    "wrong",
    [{"lease_seconds": 0}, {"lease_seconds": -1}, {"lease_seconds": "soon"}, {"lease_seconds": math.nan},
     {"lease_seconds": math.inf}, {"keep_snapshots": 0}, {"keep_snapshots": 2.5}, {"keep_snapshots": True},
     {"quarantine_seconds": -1}, {"footer_limit": -1}, {"durable": "perhaps"}, {"metadata_updates": "later"},
     {"catalog": 5}, {"hold_timeout_seconds": -0.1}, {"no_such_setting": 1}],
)  # fmt: skip
def test_a_wrong_setting_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidSetting, match=name):
        load_settings(environment={}, **wrong)


def test_a_file_that_is_missing_or_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"missing\.toml"):
        load_settings(tmp_path / "missing.toml", {})
    with pytest.raises(InvalidSetting, match="is not TOML"):
        load_settings(write(tmp_path, "registry ="), {})
    (tmp_path / "latin.toml").write_bytes('catalog = "caf\xe9"'.encode("latin-1"))
    with pytest.raises(InvalidSetting, match="is not TOML"):
        load_settings(tmp_path / "latin.toml", {})


def test_no_secret_is_in_a_repr() -> None:
    settings = Settings(
        registry="postgresql://me:SECRET@host/db?sslpassword=SECRET", token="SECRET", s3_secret_key="SECRET"
    )
    assert "SECRET" not in repr(settings)
    assert "postgresql://me:***@host/db" in repr(settings)
    assert "SECRET" not in repr(Database(settings.registry))
    assert "SECRET" not in repr(Database("postgresql://me:SE@CR/SECRET@host/db"))  # not escaped, as people write it


@pytest.mark.parametrize(
    "url",
    ["mysql://me:SECRET@host/db", "postgresql://me:SECRET@host:port/db", "postgres ql://me:SECRET@host/db"],
)
def test_no_secret_is_in_the_refusal_of_a_registry(url: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Database(url)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_no_secret_is_in_the_refusal_of_a_value_of_the_wrong_type() -> None:
    for name in ("token", "s3_secret_key"):
        with pytest.raises(InvalidSetting) as refused:
            load_settings(environment={}, **dict[str, Any]({name: 123454321}))
        assert "123454321" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [("postgresql://me@host/db", "postgresql://me@host/db"), ("sqlite:////data/r.db", "sqlite:////data/r.db"),
     ("postgresql://h/d?password=x&application_name=a", "postgresql://h/d?password=***&application_name=a")],
)  # fmt: skip
def test_only_what_is_secret_is_hidden(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_path_becomes_a_url_and_a_url_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry_url("a b%20c.db") == f"sqlite:///{tmp_path}/a b%20c.db"
    assert registry_url("postgresql://host/db") == "postgresql://host/db"
    with pytest.raises(InvalidSetting, match=r"holds '\?'"):
        registry_url("what?.db")


def test_sparks_settings_are_a_table_with_dotted_names_quoted_or_not(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('spark_master = "yarn"\n[spark_conf]\nspark.executor.memory = "2g"\n"spark.ui.enabled" = false\n')
    settings = load_settings(file, environment={})
    assert settings.spark_master == "yarn"
    assert settings.spark_options == {"spark.executor.memory": "2g", "spark.ui.enabled": "false"}
    with pytest.raises(InvalidSetting, match=r"spark_conf.*table"):
        load_settings(environment={"LAKEWARD_SPARK_CONF": "x=y"})
