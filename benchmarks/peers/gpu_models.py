# SPDX-License-Identifier: Apache-2.0
"""The models of the GPU benchmarks as PyTorch's users write them; each has the parameters of ours."""

import torch
from torch import nn
from torch.nn import functional as F


def cifar(_):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * 6 * 6, 512), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(512, 10))


def alexnet(task):
    side = (task.size + 4 - 11) // 4 + 1
    for _ in range(3):
        side = (side - 3) // 2 + 1  # overlapping pools
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(), nn.Linear(256 * side * side, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000))


def vgg16(task):
    layers, channels = [], 3
    for convolutions, filters in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]:
        for _ in range(convolutions):
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(512 * (task.size // 32) ** 2, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000))


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


def resnet50(_):
    layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            width = 64 << stage
            layers.append(Bottleneck(channels, width, 2 if block == 0 and stage > 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Block(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.expand = nn.Linear(features, 4 * features)
        self.contract = nn.Linear(4 * features, features)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.contract(F.gelu(self.expand(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self, vocabulary, context, features, heads, layers):
        super().__init__()
        self.words = nn.Embedding(vocabulary, features)
        self.positions = nn.Embedding(context, features)
        self.blocks = nn.ModuleList(Block(features, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.01)

    def forward(self, words):
        x = self.words(words) + self.positions.weight[:words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)  # the head is tied


def gpt2(task):
    if task.tiny:
        return GPT2(vocabulary=256, context=task.size, features=64, heads=2, layers=2)
    return GPT2(vocabulary=50304, context=task.size, features=768, heads=12, layers=12)


class DCGAN(nn.Module):
    """Both networks; called on images and noise it gives the scores of the images and of those it draws."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(64, 64 * 7 * 7), nn.Unflatten(1, (64, 7, 7)), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1), nn.Sigmoid())
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(32, 64, 5, stride=2, padding=2), nn.BatchNorm2d(64), nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 1))

    def forward(self, image, z):
        real = self.discriminator(image.unsqueeze(1) * 2 - 1)
        fake = self.discriminator(self.generator(z) * 2 - 1)
        return real, fake


def dcgan(_):
    return DCGAN()


CLASSES = {"cifar": 10, "alexnet": 1000, "vgg16": 1000, "resnet50": 1000}
MODELS = {"cifar": cifar, "alexnet": alexnet, "vgg16": vgg16, "resnet50": resnet50, "gpt2": gpt2, "dcgan": dcgan}


def build(task):
    """The model of a task on its device, in training mode."""
    model = MODELS[task.task](task).to(task.device)
    return model.to(memory_format=torch.channels_last) if task.channels_last else model


def batch(task):
    """One constant batch on the device."""
    on = {"device": task.device}
    if task.task == "gpt2":
        vocabulary = 256 if task.tiny else 50304
        return (torch.randint(0, vocabulary, (task.batch, task.size), **on),
                torch.randint(0, vocabulary, (task.batch, task.size), **on))
    if task.task == "dcgan":
        return torch.rand(task.batch, 28, 28, **on), torch.randn(task.batch, 64, **on)
    images = torch.randn(task.batch, 3, task.size, task.size, **on)
    if task.channels_last:
        images = images.to(memory_format=torch.channels_last)
    return images, torch.randint(0, CLASSES[task.task], (task.batch,), **on)
