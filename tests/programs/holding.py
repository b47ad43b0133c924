# ruff: noqa
# mypy: ignore-errors
"""A script for `test_pickling.py`. It pickles functions that use many kinds of objects, each into a file of a folder.

It prints JSON: for each function its result, or the message with which pickling refuses the function.
"""

import contextvars, functools, io, logging, os, pathlib, sys, threading, weakref
import thunder, torch
import torch.nn.functional as F
from torch import ops as o

aten = torch.ops.aten
packet = torch.ops.aten.sin
overload = torch.ops.aten.sin.default
lock, rlock, event, cond = threading.Lock(), threading.RLock(), threading.Event(), threading.Condition()
var = contextvars.ContextVar("v")
var2 = contextvars.ContextVar("v2", default=2.0)
var3 = contextvars.ContextVar("v3")
var3.set(3.0)
log = logging.getLogger("mine")
gen = (i for i in range(3))
lam = lambda x: x * 2
file = open(__file__, "rb")
wfile = open(os.devnull, "w")


class C:
    def __init__(self):
        self.k = 2.0

    def m(self, x):
        return x * self.k


c = C()
bound = c.m
weak = weakref.ref(c)
dead = weakref.ref(C())


def plain(x):
    return x + 1


compiled = torch.compile(plain)
jitted = thunder.jit(plain)
cmod = torch.compile(torch.nn.Linear(2, 2))


@torch.jit.script
def scripted(x):
    return x + 1


part = functools.partial(lam)
thread = threading.Thread(target=print)


@torch.library.custom_op("mine::op", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return x + 1


genr = torch.Generator()
weakd = weakref.WeakValueDictionary()
weakd["c"] = c
local = threading.local()
cached = functools.cache(plain)
fns = dict(
    ops=lambda x: torch.ops.aten.sin(x) * x,
    o=lambda x: o.aten.sin(x),
    aten=lambda x: aten.sin(x),
    packet=lambda x: packet(x),
    overload=lambda x: overload(x),
    F=lambda x: F.relu(x),
    lock=lambda x: (lock, x)[1],
    rlock=lambda x: (rlock, x)[1],
    event=lambda x: (event, x)[1],
    cond=lambda x: (cond, x)[1],
    var=lambda x: x * var.get(1.0),
    var2=lambda x: x * var2.get(),
    var3=lambda x: x * var3.get(),
    log=lambda x: (log.debug("s"), x)[1],
    gen=lambda x: (gen, x)[1],
    lam=lambda x: lam(x),
    file=lambda x: (file, x)[1],
    wfile=lambda x: (wfile, x)[1],
    bound=lambda x: bound(x),
    weak=lambda x: weak().m(x),
    dead=lambda x: x if dead() is None else x * 0,
    compiled=lambda x: compiled(x),
    jitted=lambda x: jitted(x),
    cmod=lambda x: cmod(x),
    scripted=lambda x: scripted(x),
    part=lambda x: part(x),
    thread=lambda x: (thread, x)[1],
    custom=lambda x: custom(x),
    customop=lambda x: torch.ops.mine.op(x),
    generator=lambda x: (genr, x)[1],
    weakd=lambda x: weakd["c"].m(x),
    local=lambda x: (local, x)[1],
    cached=lambda x: (cached, x)[1],
    special=lambda x: torch.special.expit(x),
    fft=lambda x: torch.fft.fft(x).abs(),
    classes=lambda x: (torch.classes, x)[1],
    backends=lambda x: (torch.backends.mha, torch.backends.cuda, x)[2],
    stdout=lambda x: (sys.stdout, x)[1],
    stream=lambda x: (io.StringIO("a"), x)[1],
)


class Held:
    def __init__(self):
        self.deep = {"a": [gen]}


held = Held()
fns["held"] = lambda x: (held, x)[1]

import json, workbench.errors
from workbench.programs import pickling

x, sent = torch.ones(2, 2), {}
for name, f in fns.items():
    try:
        data = pickling.dumps((f, (x,)), name)
    except workbench.errors.ProgramError as error:
        sent[name] = {"refused": str(error)}
        continue
    pathlib.Path(sys.argv[1], name).write_bytes(data)
    sent[name] = {"value": f(x).tolist()}
print(json.dumps(sent))
