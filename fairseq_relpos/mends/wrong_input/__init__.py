"""What a user can get wrong before anything runs, each said in one line: flags, texts, data, models."""
