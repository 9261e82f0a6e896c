"""Operations metadata: positions, source schemas, runs, errors and dead letters."""
