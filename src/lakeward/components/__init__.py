"""What looks after the tables. Components never call each other: what one tells another is a registry row."""
