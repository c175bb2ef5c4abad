"""Who is told of events: watchers inside of a call, and sinks."""
