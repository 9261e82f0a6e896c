"""What looks after the tables: flush, recovery, clean-up, audit."""
