"""GitHub: events in, comment, check run, annotations, summary and outputs out. On the trusted side, with the token."""
