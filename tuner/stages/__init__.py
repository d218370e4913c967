"""The stages of a search, one module each; a command is made of them."""
