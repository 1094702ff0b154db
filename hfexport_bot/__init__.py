"""hfexport-bot: keeps Hugging Face models exportable."""
