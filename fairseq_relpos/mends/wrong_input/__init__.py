"""Checks of the user's input (flags, texts, data, models) before anything runs, each with an error of one line."""
