# SPDX-License-Identifier: Apache-2.0
"""Batches of JPEGs by torchvision and torch's DataLoader: jpeg_loader.py <folder> <batch> <workers>.

First fills the folder, which our side reads, too, with pieces of photographs: 500 x 375 pixels, quality 90.
"""

import glob
import os
import random
import sys

import peer

torch = peer.require("torch")
transforms = peer.require("torchvision.transforms")
Image = peer.require("PIL.Image")

folder, batch, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
photographs = sorted(glob.glob("/usr/share/backgrounds/*_by_*.jpg"))
if not photographs:
    print("skip: there are no photographs (on Debian: apt install lomiri-wallpapers-16.04)", flush=True)
    sys.exit(0)


def write_pieces(count):
    """Parts of the photographs, from a half to all of their width, made as large as ImageNet's images are."""
    rng = random.Random(1)
    pieces = []
    for path in photographs:
        photograph = Image.open(path)
        photograph.draft("RGB", (1600, 1600))  # large enough, and soon done
        photograph = photograph.convert("RGB")
        for number in range(count):
            scale = rng.uniform(0.5, 1)
            width = min(photograph.width, photograph.height * 4 / 3) * scale
            left = rng.uniform(0, photograph.width - width)
            top = rng.uniform(0, photograph.height - width * 3 / 4)
            piece = photograph.resize((500, 375), Image.LANCZOS, (left, top, left + width, top + width * 3 / 4))
            pieces.append(os.path.join(folder, f"{os.path.basename(path)[:-4]}_{number}.jpg"))
            piece.save(pieces[-1], quality=90)
    return pieces


class Photographs(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files = files
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return self.transform(Image.open(file).convert("RGB")), index % 1000


torch.set_num_threads(1)
# As long as a pass over a real data set: the workers idle between passes.
files = write_pieces(8) * 200
loader = torch.utils.data.DataLoader(Photographs(files), batch_size=batch, shuffle=True, drop_last=True,
                                     num_workers=workers, persistent_workers=True)


def batches():
    while True:
        yield from loader


def drop_prefetched():
    """What was made while the other side was timed does not count."""
    for _ in range(2 * workers):
        next(stream)


stream = batches()
peer.serve(lambda: next(stream), before=drop_prefetched)
