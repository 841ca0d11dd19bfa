# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST by torch's DataLoader, shuffled, in batches: dataloader.py <batch> <workers>."""

import gzip
import os
import sys

import peer

numpy = peer.require("numpy")
torch = peer.require("torch")

root = os.path.join(os.environ.get("TENSORPACK_DATASET", "/usr/share/datasets"), "fashion-mnist")


def read(name, header):
    path = os.path.join(root, name)
    if not os.path.exists(path):
        print(f"skip: there is no {path}", flush=True)
        sys.exit(0)
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read()[header:], dtype=numpy.uint8)


class FashionMnist(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.from_numpy(read("train-images-idx3-ubyte.gz", 16).copy()).view(-1, 28, 28)
        self.labels = read("train-labels-idx1-ubyte.gz", 8).tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index].float() / 255, self.labels[index]


torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(FashionMnist(), batch_size=int(sys.argv[1]), shuffle=True, drop_last=True,
                                     num_workers=int(sys.argv[2]), persistent_workers=True)


def batches():
    while True:
        yield from loader


stream = batches()
peer.serve(lambda: next(stream))
