"""The rules of the topic log that no constraint can say, as triggers: SQL typed by hand keeps them too.

Segments of a partition neither overlap nor leave holes, and never move; a partition's offsets only advance.
"""

from __future__ import annotations

PREFIX = "log_"  # of every trigger and function made here

# What is wrong with a new segment, as SQL that is true then, and what is said of it. One step in an index each: they run
# for every segment.
_SAME = "topic_id = NEW.topic_id AND partition_id = NEW.partition_id"
_BEFORE = (
    f"coalesce((SELECT end_offset + 1 FROM segments WHERE {_SAME} AND base_offset < NEW.base_offset "
    "ORDER BY base_offset DESC LIMIT 1), "
    f"(SELECT log_start_offset FROM partitions WHERE {_SAME}), NEW.base_offset)"
)
_AFTER = (
    f"(SELECT base_offset FROM segments WHERE {_SAME} AND base_offset >= NEW.base_offset ORDER BY base_offset LIMIT 1)"
)
ADVANCE = "NEW.high_watermark < OLD.high_watermark OR NEW.log_start_offset < OLD.log_start_offset"
ADVANCE_MESSAGE = "the offsets of a partition only advance"
FIXED = ("topic_id", "partition_id", "base_offset", "end_offset")
FIXED_MESSAGE = "a segment keeps its place for life; delete it and insert another"


def statements(dialect_name: str) -> list[str]:
    """The statements that make the triggers on 'sqlite' or 'postgresql'."""
    changes_place = " OR ".join(f"NEW.{column} <> OLD.{column}" for column in FIXED)
    insert = "BEFORE INSERT ON segments"
    rules = [
        ("begin", insert, f"NEW.base_offset <> {_BEFORE}", "a segment begins where the one before it ends"),
        ("end", insert, f"{_AFTER} <> NEW.end_offset + 1", "a segment ends where the next one begins"),
        ("fixed", f"BEFORE UPDATE OF {', '.join(FIXED)} ON segments", changes_place, FIXED_MESSAGE),
        ("advance", "BEFORE UPDATE OF high_watermark, log_start_offset ON partitions", ADVANCE, ADVANCE_MESSAGE),
    ]
    make = _sqlite if dialect_name == "sqlite" else _postgresql
    return [statement for rule in rules for statement in make(*rule)]


def _sqlite(name: str, event: str, wrong: str, message: str) -> list[str]:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
    return [f"CREATE TRIGGER {PREFIX}{name} {event} FOR EACH ROW WHEN {wrong} {refuse}"]


def _postgresql(name: str, event: str, wrong: str, message: str) -> list[str]:
    # WHEN may not look into tables there.
    return [
        f"""CREATE FUNCTION {PREFIX}{name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF {wrong} THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = '{message}';
  END IF;
  RETURN NEW;
END $$""",
        f"CREATE TRIGGER {PREFIX}{name} {event} FOR EACH ROW EXECUTE FUNCTION {PREFIX}{name}()",
    ]
