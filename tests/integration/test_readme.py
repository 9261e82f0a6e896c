"""What the README and the tutorial show runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import lakeward
from tests.support import duck

ROOT = Path(__file__).parents[2]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(program: str, folder: Path) -> str:
    """What a program prints in an empty folder, without settings from outside."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARD_")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_readme_shows_the_example() -> None:
    [block] = python_blocks("README.md")
    assert block == (ROOT / "examples" / "first_table.py").read_text(encoding="utf-8")
    assert len(block.splitlines()) <= 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readmes_program_writes_a_table_and_reads_it_back(tmp_path: Path) -> None:
    [block] = python_blocks("README.md")
    printed = run(block, tmp_path)
    assert re.search(r"registered 1000 rows in \d+ files", printed)  # one for each of Spark's tasks and each day
    assert re.search(r"\|Oslo\|\s*250249\.50\|", printed) and re.search(r"\|Lima\|\s*499000\.50\|", printed)
    assert "334 orders from Oslo" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorials_programs_run_one_after_the_other(tmp_path: Path) -> None:
    """The tutorial says in comments what is printed; each of these lines must come."""
    blocks = python_blocks("docs/tutorial.md")
    promised = [line for block in blocks for line in re.findall(r"^# -> (.*)$", block, re.MULTILINE)]
    assert promised
    printed = run("\n".join(blocks), tmp_path).splitlines()
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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_programs_of_the_page_on_topics_run_one_after_the_other(tmp_path: Path) -> None:
    blocks = python_blocks("docs/how-to/topics.md")
    promised = [line for block in blocks for line in re.findall(r"^# -> (.*)$", block, re.MULTILINE)]
    assert len(promised) >= 8
    printed = run("\n".join(blocks), tmp_path).splitlines()
    assert [line for line in promised if line not in printed] == []
