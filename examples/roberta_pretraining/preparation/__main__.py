"""python -m preparation OUT WORKERS FILE... -- NAME=VALUE...: what prepare.sh calls."""

import errno
import fcntl
import sys
from pathlib import Path

from tqdm import tqdm

from . import settings
from .pipeline import Pipeline
from .problem import Problem

#: no thread beside the processes that are forked
tqdm.monitor_interval = 0


def say(text):
    tqdm.write(f"prepare.sh: {text}", file=sys.stdout)
    sys.stdout.flush()


def main(out, workers, *rest):
    end = rest.index("--")
    if not workers.isdigit() or not int(workers):
        raise Problem(f"--workers {workers}: give a number above 0")
    pipeline = Pipeline(out, rest[:end], settings.read(rest[end + 1 :]), int(workers), say)
    Path(out).mkdir(parents=True, exist_ok=True)
    with open(Path(out, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{out} is being made by another process: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            say(f"{out} is on a file system without locks: see to it that nothing else works there")
        pipeline.run()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Problem as problem:
        sys.exit(f"prepare.sh: error: {problem}")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = (
            "make room, or give another OUT; what is done is kept: run again" if full else "see to it and run again"
        )
        sys.exit(f"prepare.sh: error: {error.filename or sys.argv[1]}: {error.strerror or error}: {remedy}")
    except KeyboardInterrupt:
        sys.exit("prepare.sh: stopped; the same command goes on from here")
