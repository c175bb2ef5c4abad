"""Stores in a Postgres database, with psycopg; loaded only for a ``postgresql://`` URL."""
