# SPDX-License-Identifier: Apache-2.0
"""A peer of the GPU benchmarks, with what a careful user of PyTorch would switch on.

  gpu.py --task resnet50 --mode compile --batch 256 --size 224 --precision bf16 --channels-last --scratch DIR

It answers requests: `<n>`, the seconds of n steps; `cpu <n>`, the CPU seconds in which this thread issues n
steps; `memory`, the most bytes that were in use on the device at a time; `step_memory`, the same of the steps
after the first; `held`, the bytes taken from it; `profile <path>`, 0 after a trace of 5 steps was written to the path.
"""

import argparse
import contextlib
import fcntl
import json
import multiprocessing
import os
import sys
import time

import peer

# What torch.compile calls them.
COMPILE_MODES = {"compile": "default", "compile_reduce_overhead": "reduce-overhead",
                 "compile_max_autotune": "max-autotune"}
MODES = ["eager", "cuda_graph", *COMPILE_MODES, "lightning"]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="side of an image, or tokens of a text")
    parser.add_argument("--precision", choices=["tf32", "bf16"], default="tf32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scratch", required=True, help="a folder shared with the other peers of this run")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def skip(reason):
    print(f"skip: {reason}", flush=True)
    sys.exit(0)


task = arguments()
# Caches of earlier runs would hide what compiling costs. max-autotune takes eight minutes: who asks for its steps
# alone may keep what it found.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = (os.environ.get("TENSORPACK_BENCH_INDUCTOR_CACHE")
                                         or os.path.join(task.scratch, f"inductor-{os.getpid()}"))
torch = peer.require("torch")
if task.mode == "lightning":
    lightning = peer.require("pytorch_lightning")
import gpu_models  # noqa: E402: it needs torch

nn = torch.nn
on_gpu = task.device == "cuda"
if on_gpu and not torch.cuda.is_available():
    skip(f"the torch of {sys.executable} finds no CUDA device")
if task.mode == "cuda_graph" and not on_gpu:
    skip("CUDA graphs need CUDA")
if task.task == "gpt2" and not hasattr(nn.functional, "scaled_dot_product_attention"):
    skip(f"torch {torch.__version__} has no scaled_dot_product_attention")
if task.mode.startswith("compile") and not hasattr(torch, "compile"):
    skip(f"torch {torch.__version__} has no torch.compile")

# Whatever a library prints must not be taken for an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(*words):
    print(*words, file=answers, flush=True)


def request():
    """The words of the next request; leaves at the end of the input."""
    line = sys.stdin.readline()
    if not line:
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(0)  # tearing down models and compilers takes seconds
    return line.split()


def synchronize():
    if on_gpu:
        torch.cuda.synchronize()


class Gpu:
    """One peer at a time uses the GPU while it sets up, so that none tunes its kernels beside another's work.
    Compilers need the CPU alone, and run together."""

    def __init__(self):
        self.file = open(os.path.join(task.scratch, "gpu.lock"), "w")
        self.waited = 0.0

    def take(self, *_):
        start = time.perf_counter()
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.waited += time.perf_counter() - start

    def leave(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def leave_to_compile(self, reason=None):
        # The recording of CUDA graphs is announced in the same way, but uses the GPU.
        if reason is None or reason.callback_trigger.name in ("DYNAMO", "LAZY_BACKWARD"):
            self.leave()

    def leave_while_compiling(self):
        try:
            from torch._dynamo.callback import on_compile_end, on_compile_start
        except ImportError:
            return  # the peers then compile one after the other
        on_compile_start(self.leave_to_compile)
        on_compile_end(self.take)


class Cost(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, label):
        logits = self.model(x)
        return nn.functional.cross_entropy(logits.flatten(0, -2).float(), label.flatten())


def autocast():
    if task.precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(task.device, dtype=torch.bfloat16)


class Classifier:
    """Trains a classifier, of images or of next words."""

    def __init__(self):
        model = gpu_models.build(task)
        self.batch = gpu_models.batch(task)
        self.parameters = sum(p.numel() for p in model.parameters())
        if task.task == "gpt2":
            self.optimizers = [torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, **fused())]
        else:
            self.optimizers = [torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)]
        self.cost = Cost(model)
        if task.mode in COMPILE_MODES:
            self.cost = torch.compile(self.cost, mode=COMPILE_MODES[task.mode])

    def backward(self):
        with autocast():
            cost = self.cost(*self.batch)
        cost.backward()


class Gan:
    """Updates both players from one batch and one pass through the networks."""

    def __init__(self):
        self.model = gpu_models.build(task)
        self.batch = gpu_models.batch(task)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.players = [list(self.model.generator.parameters()), list(self.model.discriminator.parameters())]
        self.optimizers = [torch.optim.Adam(player, lr=2e-4, betas=(0.5, 0.999), **fused()) for player in self.players]
        if task.mode == "compile":
            torch._functorch.config.donated_buffer = False  # one pass forward has two backward
            self.model = torch.compile(self.model)

    def backward(self):
        cross_entropy = nn.functional.binary_cross_entropy_with_logits
        with autocast():
            real, fake = self.model(*self.batch)
        d_loss = (cross_entropy(real, torch.ones_like(real)) + cross_entropy(fake, torch.zeros_like(fake))) / 2
        g_loss = cross_entropy(fake, torch.ones_like(fake))
        g_loss.backward(inputs=self.players[0], retain_graph=True)
        d_loss.backward(inputs=self.players[1])


def fused():
    """Options of Adam; on a GPU its fused form is the fastest, and graphs need its step count on the device."""
    return {"fused": True, "capturable": task.mode == "cuda_graph"} if on_gpu else {}


def one_step(training):
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    training.backward()
    for optimizer in training.optimizers:
        optimizer.step()


def in_cuda_graph(step):
    """The whole step, captured once; returns what replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # the step starts by dropping the gradients: the graph has its own
        step()
    return graph.replay


def seconds_of(step, steps):
    start = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return time.perf_counter() - start


def cpu_seconds_of(step, steps):
    synchronize()
    start = time.thread_time()
    for _ in range(steps):
        step()
    taken = time.thread_time() - start
    synchronize()
    return taken


def profile(step, path):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        seconds_of(step, 5)
    trace.export_chrome_trace(path)


class Memory:
    """The most bytes in use at a time: since the start, and in the steps between two calls."""

    start = steps = 0

    def begin_steps(self):
        self.start = self.now()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()

    def end_steps(self):
        self.steps = self.now()

    @staticmethod
    def now():
        return torch.cuda.max_memory_allocated() if on_gpu else 0


memory = Memory()


def reply(step, words):
    if words[0] == "memory":
        return max(memory.start, memory.now())
    if words[0] == "step_memory":
        return memory.steps
    if words[0] == "held":
        return torch.cuda.memory_reserved() if on_gpu else 0
    if words[0] == "cpu":
        return cpu_seconds_of(step, int(words[1]))
    if words[0] == "profile":
        profile(step, words[1])
        return 0
    return seconds_of(step, int(words[0]))


def serve_steps():
    gpu = Gpu()
    if task.mode.startswith("compile"):
        gpu.leave_while_compiling()
    gpu.take()
    torch.zeros(1, device=task.device)  # creating the context is no part of the first step
    gpu.waited = 0.0
    start = time.perf_counter()
    training = Gan() if task.task == "dcgan" else Classifier()
    step = lambda: one_step(training)  # noqa: E731
    if task.mode == "cuda_graph":
        step = in_cuda_graph(step)
    step()
    synchronize()
    first_step = time.perf_counter() - start - gpu.waited
    memory.begin_steps()
    seconds_of(step, 2 if task.tiny else 5)  # graphs of reduce-overhead are recorded in the first few
    memory.end_steps()
    gpu.leave()
    answer("ready", json.dumps({"parameters": training.parameters, "first_step": first_step}))
    while True:
        answer(reply(step, request()))


class Images(torch.utils.data.Dataset):
    """Random images in the host's memory."""

    def __init__(self, count):
        self.images = torch.randint(0, 256, (count, 3, task.size, task.size), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def serve_lightning():
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = gpu_models.build(task)

        def training_step(self, batch, _):
            image, label = batch
            return nn.functional.cross_entropy(self.model((image.float() - 127.5) / 63.75), label)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    class Serve(lightning.Callback):
        """Answers between two steps of one long training."""

        left = 5 if task.tiny else 100
        start = None

        def on_train_batch_end(self, trainer, module, *_):
            self.left -= 1
            if self.left > 0:
                return
            synchronize()
            if self.start is None:
                parameters = sum(p.numel() for p in module.model.parameters())
                answer("ready", json.dumps({"parameters": parameters}))
            else:
                answer(time.perf_counter() - self.start)
            words = request()
            while not words[0].isdigit():
                answer(reply(None, words) if words[0] in ("memory", "step_memory", "held") else 0)
                words = request()
            self.left = int(words[0])
            self.start = time.perf_counter()

    workers = 0 if task.tiny else min(8, os.cpu_count())
    loader = torch.utils.data.DataLoader(
        Images(1000 if task.tiny else 50_000), batch_size=task.batch, shuffle=True, drop_last=True,
        num_workers=workers, persistent_workers=workers > 0, pin_memory=on_gpu)
    trainer = lightning.Trainer(
        accelerator="gpu" if on_gpu else "cpu", devices=1, max_epochs=-1, benchmark=True, callbacks=[Serve()],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), loader)


torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = True
if hasattr(torch, "set_float32_matmul_precision"):
    torch.set_float32_matmul_precision("high")  # TF32, as for convolutions
serve_lightning() if task.mode == "lightning" else serve_steps()
