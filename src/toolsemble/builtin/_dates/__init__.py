"""Parse and answer questions about dates, times, durations and time zones."""
