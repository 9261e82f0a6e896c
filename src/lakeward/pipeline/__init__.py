"""What moves rows: writes, scans, and the Spark jobs behind them."""
