"""Engines: Temporal and DBOS drive durable runs on many machines; Ray and Dask run the bodies of tools."""
