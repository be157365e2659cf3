"""Tables and pictures of what training left behind."""
