# SPDX-License-Identifier: Apache-2.0
"""Two processes that train a model of engine.py with DistributedDataParallel over Gloo: ddp.py <model>.

The first answers requests as peer.serve() does, the second makes as many steps.
"""

import os
import socket
import sys
import time

import peer

torch = peer.require("torch")
import torch.distributed as dist  # noqa: E402

nn = torch.nn
RANKS = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_model(name):
    if name == "mlp64":
        return nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), torch.randn(32 // RANKS, 64)
    if name == "wide_mlp":
        layers = []
        for _ in range(6):
            layers += [nn.Linear(1024, 1024), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(64 // RANKS, 1024)
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)), torch.randn(128 // RANKS, 1, 28, 28)


os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
port = free_port()
rank = 1 if os.fork() == 0 else 0
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
net, x = make_model(sys.argv[1])
model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
y = torch.randint(0, 10, (x.shape[0],))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step():
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


step()
if rank == 0:
    print("ready", flush=True)
while True:
    steps = torch.zeros(1, dtype=torch.long)
    if rank == 0:
        line = sys.stdin.readline()
        steps[0] = int(line) if line else 0
    dist.broadcast(steps, 0)
    if steps.item() == 0:
        break
    start = time.perf_counter()
    for _ in range(steps.item()):
        step()
    if rank == 0:
        print(time.perf_counter() - start, flush=True)
