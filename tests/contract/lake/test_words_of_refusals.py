"""What a refused command says: what is wrong, with which name or number, and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import Shell, invoke


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.run("create", "shop.orders", "--schema", "id long, name string, place struct<zip: string>")
    return made


def refusal(shell: Shell, *arguments: str) -> str:
    done = invoke(*arguments, *shell.options)
    assert done.exit_code == 1, done.output
    return done.stderr


@pytest.mark.parametrize("command", ["describe", "head", "versions"])
def test_a_table_that_is_not_there_is_answered_with_names_like_it(shell: Shell, command: str) -> None:
    assert "did you mean shop.orders? `lakeward tables` lists all" in refusal(shell, command, "shop.order")
    assert "did you mean shop.orders?" in refusal(shell, command, "shpo.orders")
    assert "; `lakeward tables` lists what there is" in refusal(shell, command, "zzz.qqq")
    shell.run("tables")  # what it advises


def test_a_namespace_that_is_not_there_is_answered_with_names_like_it(shell: Shell) -> None:
    assert "did you mean shop?" in refusal(shell, "tables", "shopp")


@pytest.mark.parametrize(
    ("words", "column"),
    [
        (("add-column", "shop.orders", "name", "int"), "'name', of type string"),
        (("add-column", "shop.orders", "NAME", "int"), "'name', of type string"),
        (("add-column", "shop.orders", "place.zip", "int"), "'zip', of type string"),
        (("rename-column", "shop.orders", "id", "name"), "'name', of type string"),
    ],
)
def test_a_name_that_is_taken_says_by_which_column(shell: Shell, words: tuple[str, ...], column: str) -> None:
    said = refusal(shell, "alter", *words)
    assert f"is taken by the column {column}" in said and "choose another name" in said


def test_a_column_may_keep_its_name_in_another_case(shell: Shell) -> None:
    shell.run("alter", "rename-column", "shop.orders", "name", "Name")


@pytest.mark.parametrize("transform", ["bucket", "truncate"])
def test_a_number_that_a_transform_cannot_have_is_named(shell: Shell, transform: str) -> None:
    said = refusal(shell, "create", "shop.t", "--schema", "id int", "--partition-by", f"{transform}(0, id)")
    assert f"{transform} by 0 cannot be; give a number from 1 to 2147483647" in said


def test_the_total_of_a_scan_counts_the_rows_in_it(shell: Shell) -> None:
    shell.run("append", "shop.orders", "-", lines='{"id": 1}\n{"id": 2}\n')
    found = shell.json("scan", "shop.orders", "--limit", "1")
    assert (len(found["rows"]), found["total"]) == (1, 1)
