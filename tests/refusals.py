"""How a command refuses what it is given."""

from pathlib import Path

from fairseq_relpos.cli import main


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def assert_refused(command, what, capsys, folder="."):
    """The command ends in one line with these words, and leaves every file of the folder as it was."""
    before = contents(folder)
    capsys.readouterr()
    assert main([*map(str, command)]) == 1, command
    printed, error = capsys.readouterr()
    assert not printed and len(error.splitlines()) == 1, printed + error
    for words in [what] if isinstance(what, str) else what:
        assert words in error, error
    assert contents(folder) == before, command
