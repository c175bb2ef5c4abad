"""How a call asks its reviewer: the question and its deadline, and the handler that gets the request."""
