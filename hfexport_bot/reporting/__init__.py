"""One report, rendered for people and for machines."""
