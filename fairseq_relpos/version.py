__version__ = "1.0.0rc1"

#: the address of the repository for git, such as https://example.org/fairseq_relpos; "": it has none yet
REPOSITORY = ""


def install(extra: str) -> str:
    """How to install the package with an extra. No package index has it."""
    if REPOSITORY:
        return f"pip install 'fairseq_relpos[{extra}] @ git+{REPOSITORY}'"
    return f"pip install '.[{extra}]' in a checkout of fairseq_relpos"
