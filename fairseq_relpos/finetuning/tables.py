"""Files of tab-separated values as GLUE has them: UTF-8, a line a row, and no quoting. A quotation mark is text, so a
broken pair of them joins no lines."""

from collections.abc import Sequence
from pathlib import Path


class Table:
    """The rows of a file. Raises ValueError, one line, for a row with too few or too many values."""

    def __init__(self, path: Path, without_header: Sequence[str] = (), data: bytes | None = None):
        """without_header: names of the columns, for a file whose first line does not have them. data: what is in the
        file, where it was packed."""
        self.path = path
        text = decoded(path, path.read_bytes() if data is None else data)
        # only \n ends a line: some sentences have other separators of Unicode
        rows = [line.rstrip("\r").split("\t") for line in text.split("\n")]
        while rows and rows[-1] == [""]:
            rows.pop()
        if not rows:
            raise ValueError(f"{path} is empty: get it again")
        self.first_line = 1
        self.header: Sequence[str] = without_header
        if not without_header or set(rows[0]) & set(without_header) or "index" in rows[0]:
            self.header = rows.pop(0)
            self.first_line = 2
        self.rows = rows
        wrong = [n for n, row in enumerate(rows, self.first_line) if len(row) != len(self.header)]
        if wrong:
            found = len(rows[wrong[0] - self.first_line])
            raise ValueError(
                f"{path}, line {wrong[0]}: {found} values for {len(self.header)} columns"
                + (f", and {len(wrong) - 1} more such lines" if wrong[1:] else "")
                + ": mend them (a tab within a sentence?), or get the file again"
            )

    def has(self, names: Sequence[str]) -> bool:
        """Whether there is a column with one of these names."""
        return not set(names).isdisjoint(self.header)

    def column(self, names: Sequence[str]) -> list[str]:
        """The values of the column with one of these names."""
        for name in names:
            if name in self.header:
                index = list(self.header).index(name)
                return [row[index] for row in self.rows]
        found = ", ".join(self.header)
        raise ValueError(f"{self.path} has no column {' or '.join(names)}: it has {found} (tabs are between columns)")


def decoded(path: Path, data: bytes, encoding: str = "utf-8-sig") -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 ({error.reason} at byte {error.start}): get it again") from None
