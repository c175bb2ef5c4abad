"""Tools, servers, processes and clocks that the tests share."""
