"""``python -m hfexport_bot``."""

from hfexport_bot.cli import entry_point

if __name__ == "__main__":
    entry_point()
