# SPDX-License-Identifier: Apache-2.0
"""The models of `bench` in Python, as its users write them: engine.py <model> <threads>."""

import sys

import peer

torch = peer.require("torch")
nn = torch.nn

torch.set_num_threads(int(sys.argv[2]))
if sys.argv[1] == "mlp64":
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x = torch.randn(32, 64)
elif sys.argv[1] == "small_cnn":
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.randn(128, 1, 28, 28)
else:
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
    x = torch.randn(128, 1, 28, 28)
y = torch.randint(0, 10, (x.shape[0],))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


peer.serve(step)
