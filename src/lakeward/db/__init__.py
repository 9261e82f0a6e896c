"""SQL and nothing else: functions that take a connection, return records and never commit."""
