"""Where stores keep their rows: in a SQLite file, or in a Postgres database that many machines share."""
