"""The weights of embedded models: the catalogue, the sources, the download and the cache."""
