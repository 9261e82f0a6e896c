"""What the README and the tutorial show runs as it stands there."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeward
from tests.support import duck

ROOT = Path(__file__).parents[2]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def run(spark_process: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What a program prints in an empty folder, without settings from outside, on the Spark that is there, which goes on.

    That the README's program starts one of its own is tried with the wheel.
    """
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LAKEWARD_")]:
        monkeypatch.delenv(name)

    def printed_by(program: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        return printed.getvalue()

    return printed_by


def test_the_readme_shows_the_example() -> None:
    [block] = python_blocks("README.md")
    assert block == (ROOT / "examples" / "first_table.py").read_text(encoding="utf-8")
    assert len(block.splitlines()) <= 20


def test_the_readmes_program_writes_a_table_and_reads_it_back(run: Callable[[str], str]) -> None:
    [block] = python_blocks("README.md")
    printed = run(block)
    assert re.search(r"registered 1000 rows in \d+ files", printed)  # one for each of Spark's tasks and each day
    assert re.search(r"\|Oslo\|\s*250249\.50\|", printed) and re.search(r"\|Lima\|\s*499000\.50\|", printed)
    assert "334 orders from Oslo" in printed


def test_the_tutorials_programs_run_one_after_the_other(run: Callable[[str], str]) -> None:
    """The tutorial says in comments what is printed; each of these lines must come."""
    blocks = python_blocks("docs/tutorial.md")
    promised = [line for block in blocks for line in re.findall(r"^# -> (.*)$", block, re.MULTILINE)]
    assert promised
    printed = run("\n".join(blocks)).splitlines()
    assert [line for line in promised if line not in printed] == []


def test_the_tutorials_duckdb_statements_read_a_served_table(lake: lakeward.Lake) -> None:
    """As they stand there, but for where the server is, and without INSTALL, which downloads."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```sql\nINSTALL iceberg; LOAD iceberg;\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lake.create_table("shop.orders", {"id": "long", "city": "string", "amount": "decimal(9,2)"})
    lake.append("shop.orders", [{"id": i, "city": "Oslo", "amount": Decimal("1.50")} for i in range(4)])
    url, token = lake.serve()
    statements = block.replace("http://127.0.0.1:8181", url).replace("choose-a-word", str(token))
    with duck.connect() as connection:
        assert connection.execute(statements).fetchall() == [("Oslo", Decimal("6.00"))]


def test_the_programs_of_the_page_on_topics_run_one_after_the_other(run: Callable[[str], str], tmp_path: Path) -> None:
    """But for the folder's whole path, since the Spark that is there was started in another one."""
    blocks = python_blocks("docs/how-to/topics.md")
    promised = [line for block in blocks for line in re.findall(r"^# -> (.*)$", block, re.MULTILINE)]
    assert len(promised) >= 8
    printed = run("\n".join(blocks).replace("lakehouse/", f"{tmp_path}/lakehouse/")).splitlines()
    assert [line for line in promised if line not in printed] == []
