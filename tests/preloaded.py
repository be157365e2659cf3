"""A Python that has imported torch and fairseq before: of the time of a test's subprocess that is most.

With ``env=preloaded.environment()`` a subprocess runs the same programs with the same words, also where they
are started by a script within it: ``python SCRIPT``, ``python -m MODULE``, ``python -c CODE`` and the commands
that pip installs. Each runs in a fork of one process, started when it is first needed; the plugin and the
fairseq command itself are not among what is imported before. ``handing_over/sitecustomize.py`` is the other
side. A test has to start a Python of its own, with os.environ or with PRELOADED="", where it is about imports and
what they print, compares processes (all forks hash alike, PYTHONHASHSEED), or looks at a process itself: the one
that was started waits for the fork, which has another number.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib
import logging
import marshal
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from pathlib import Path

HANDING_OVER = Path(__file__).parent / "handing_over"
IMPORTED = (
    "torch",
    "torch._dynamo",  # every optimizer imports it, in more than a second
    "torch.distributed.run",
    "matplotlib.pyplot",
    "sacrebleu",
    "sentencepiece",
    *(f"fairseq_cli.{name}" for name in ("eval_lm", "generate", "interactive", "preprocess", "train", "validate")),
)
#: what Python and libraries read as they start, so that it has to be the same
READ_AT_START = (
    *("HOME", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "OMP_", "OPENBLAS_", "PYTHON"),
    *("TORCH_COMPILE", "TORCH_LOGS", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_INTERPRET"),
)
READ_LATER = ("PYTHONPATH", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED")

_started = None


def environment(**more):
    """os.environ and ``more``, for a subprocess whose Python programs run in the preloaded one."""
    global _started
    if _started is None:
        _started = _start()
    folder = _started[0]
    path = more.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, [path, str(HANDING_OVER)]))
    # trainings of recipes with another allocator would each need a Python of their own
    own = {"PRELOADED": f"{folder.name}/socket", "PYTHONPATH": path, "ALLOCATOR": "default"}
    return {**os.environ, **own, **more}


def stop():
    """Ends the preloaded process, and all that it runs."""
    global _started
    if _started is not None:
        folder, process = _started
        process.stdin.close()
        process.wait()
        folder.cleanup()
        _started = None


def _start():
    folder = tempfile.TemporaryDirectory(prefix="preloaded")
    # it can be asked at once, and answers when its imports are done
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(f"{folder.name}/log", "w") as log:
        listener.bind(f"{folder.name}/socket")
        listener.listen(100)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            start_new_session=True,
        )
    return folder, process


def read_at_start(environ):
    return {name: value for name, value in environ.items() if name.startswith(READ_AT_START) and name not in READ_LATER}


def serve(listener, at_start):
    """Forks a process for each request. Returns in the fork: its request and its files. at_start: what of the
    environment was read at the start of this process."""
    clients, processes = {}, {}  # socket -> process or None; pidfd -> (process, socket)
    while True:
        for ready in select.select([0, listener, *clients, *processes], [], [])[0]:
            if ready == 0:
                for process, _ in processes.values():
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                os._exit(0)
            elif ready is listener:
                clients[listener.accept()[0]] = None
            elif ready in processes:
                process, client = processes.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                with contextlib.suppress(OSError):
                    client.send(str(code).encode())
                clients.pop(client, None)
                client.close()
            elif ready not in clients:
                pass  # its process has just ended
            elif clients[ready] is None:
                message, files, _, _ = socket.recv_fds(ready, 1 << 20, 250)
                request = marshal.loads(message) if message else None
                if request is None or read_at_start(request["environment"]) != at_start:
                    del clients[ready]
                    ready.close()
                else:
                    process = os.fork()
                    if process == 0:
                        ready.send(b"taken")
                        return request, files
                    clients[ready] = process
                    processes[os.pidfd_open(process)] = process, ready
                for file in files:
                    os.close(file)
            else:
                with contextlib.suppress(OSError):  # it has ended, which is heard of next
                    number = ready.recv(1)
                    os.kill(clients[ready], number[0] if number else signal.SIGKILL)
                    if not number:
                        del clients[ready]


def become(request, files):
    """Makes this process what it would be had it been started by the request."""
    kept = [os.dup2(file, 500 + place) for place, file in enumerate(files)]
    os.closerange(0, 500)
    for file, number in zip(kept, request["files"]):
        os.dup2(file, number)
    os.closerange(500, 500 + len(kept))
    os.chdir(request["folder"])
    os.umask(request["umask"])
    for limit, values in request["limits"].items():
        resource.setrlimit(limit, values)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.modules["numpy"].random.seed()

    _, *words = sys.orig_argv = request["words"]
    unbuffered = words[0] == "-u" or "PYTHONUNBUFFERED" in os.environ
    words = words[1:] if words[0] == "-u" else words
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream, like = None, getattr(sys, name)
        if number in request["files"]:
            stream = open(number, like.mode, encoding=like.encoding, errors=like.errors, closefd=False)
            if number:
                stream.reconfigure(line_buffering=number == 2 or stream.isatty(), write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    path = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [os.path.abspath(folder) for folder in path.split(os.pathsep) if path] + sys.path[1:]
    return words


def run(words):
    """What Python does with its words."""
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["preloaded"], sys.modules["__main__"] = sys.modules["__main__"], main
    if words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = ["-m", *words[2:]]
        runpy._run_module_as_main(words[1])
    elif words[0] == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
        sys.argv = words
        main.__file__ = words[0]
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), main.__dict__)


def main():
    at_start = read_at_start(os.environ)  # importing torch._dynamo adds to it
    for name in IMPORTED:
        importlib.import_module(name)
    # each process runs the command's own file, which sets up the log
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq_cli"]:
        del sys.modules[name]
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    for finalizer in weakref.finalize._registry:
        finalizer.atexit = False  # torch's take back all that it has registered: 40 ms at the end of each fork
    gc.freeze()  # so that a fork shares the memory
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        request, files = serve(listener, at_start)
        listener.detach()
    words = become(request, files)
    try:
        run(words)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            sys.stdout.flush()  # as Python does
            print(end.code, file=sys.stderr)
        code = end.code or 0 if isinstance(end.code, int | None) else 1
    # Any other exception ends as Python lets it. Otherwise all that Python does at the end, but for giving
    # back memory bit by bit, which takes longer than many a program.
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        if not stream.closed:
            stream.flush()
    os._exit(code & 255)


if __name__ == "__main__":
    main()
