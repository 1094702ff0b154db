"""What the commands do, from inputs to a report: the only place where all parts meet. A module a command: each is
imported by the command that it belongs to, and loads no more than that one needs."""
