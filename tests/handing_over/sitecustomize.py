"""Python imports this as it starts, where PYTHONPATH has this folder: see ../preloaded.py.

The program of this Python is run by a process that has imported torch and fairseq before. This process stays
for as long as that one: it passes signals on and ends with the same exit code. Where the program cannot be
handed over it is run here, as if this file were not there.
"""

import os
import sys


def can_be_handed_over(words):
    """python [-u] SCRIPT, python [-u] -m MODULE and python [-u] -c CODE."""
    words = words[1:] if words[:1] == ["-u"] else words
    return len(words) > 1 if words[:1] in (["-m"], ["-c"]) else bool(words) and os.path.isfile(words[0])


def hand_over(address):
    import array
    import marshal
    import resource
    import signal
    import socket

    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    numbers = [number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD)]
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                files.append(int(name))
        except OSError:
            pass  # the one that reads the folder
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "words": sys.orig_argv,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "files": files,
        "limits": {getattr(resource, name): resource.getrlimit(getattr(resource, name)) for name in limits},
        "umask": umask,
        "ignored": [int(number) for number in numbers if signal.getsignal(number) == signal.SIG_IGN],
    }
    # from here on a signal waits, until it is known whose it is
    passed_on = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    try:
        server.connect(address)
        server.sendmsg([marshal.dumps(request)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        taken = server.recv(9) == b"taken"
    except OSError:
        taken = False  # there is no server, or the words are too long for it
    if not taken:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return

    def pass_on(number, frame):
        server.send(bytes([number]))

    for number in passed_on:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    code = int(server.recv(9) or b"1")
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if os.environ.get("PRELOADED") and can_be_handed_over(sys.orig_argv[1:]):
    hand_over(os.environ["PRELOADED"])
