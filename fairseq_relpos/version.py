__version__ = "1.0.0rc1"

#: the address of the repository, such as https://example.org/fairseq_relpos; "": it has none yet
REPOSITORY = ""


def install(extra: str) -> str:
    """How to install what an extra has, for one who has the package. No package index has it: where pip has installed
    it, pip takes the extra from there, otherwise from a checkout."""
    from importlib import metadata  # not as soon as the package is imported

    try:
        metadata.distribution("fairseq_relpos")
        package, where = f"fairseq_relpos[{extra}]", ""
    except metadata.PackageNotFoundError:
        package, where = f".[{extra}]", " in a checkout of fairseq_relpos"
    if extra == "fairseq":  # compiled against the torch that is there
        return f"pip install 'setuptools>=77' wheel cython && pip install --no-build-isolation '{package}'{where}"
    return f"pip install '{package}'{where}"


def install_package(extra: str) -> str:
    """How to install the package with an extra, for one who has nothing of it."""
    if REPOSITORY:
        return f"pip install 'fairseq_relpos[{extra}] @ git+{REPOSITORY}'"
    return f"pip install '.[{extra}]' in a checkout of fairseq_relpos"
