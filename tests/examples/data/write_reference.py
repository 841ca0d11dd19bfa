# SPDX-License-Identifier: Apache-2.0
"""Writes small models of torchvision and Hugging Face's transformers, with their weights, inputs and outputs.

The files in this folder are its output (torchvision 0.26, transformers 5, safetensors 0.8, torch 2.11):
    python3 write_reference.py .
"""
import inspect
import re
import sys

import torch
import torchvision.models.resnet
import transformers
from safetensors.torch import save_file

WIDTH = 4  # instead of 64, the number of channels of the first layer


def narrow_resnet():
    """torchvision's own class with all numbers of channels divided."""
    source = inspect.getsource(torchvision.models.resnet.ResNet)
    for channels in (64, 128, 256, 512):
        source = re.sub(rf"(inplanes = |_make_layer\(block, |Linear\(){channels}\b",
                        rf"\g<1>{channels * WIDTH // 64}", source)
    scope = vars(torchvision.models.resnet).copy()
    exec(source, scope)
    return scope["ResNet"](torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10)


def set_statistics(model):
    """As after some training: at first they do nothing."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for values in (module.weight.data, module.running_var):
                values.uniform_(0.5, 1.5)
            for values in (module.bias.data, module.running_mean):
                values.normal_(0, 0.2)


def write_resnet(folder):
    torch.manual_seed(1)
    model = narrow_resnet().eval()
    set_statistics(model)
    image = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        logits = model(image)
    save_file(model.state_dict(), f"{folder}/torchvision_resnet.safetensors")
    save_file({"image": image, "logits": logits}, f"{folder}/torchvision_resnet_io.safetensors")


def write_gpt2(folder):
    torch.manual_seed(2)
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=24, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    for values in model.parameters():
        values.data.add_(torch.randn_like(values), alpha=0.1)
    words = torch.randint(50, (3, 12))
    with torch.no_grad():
        logits = model(words).logits
    state = {name: tensor.contiguous() for name, tensor in model.transformer.state_dict().items()}
    save_file(state, f"{folder}/transformers_gpt2.safetensors", metadata={"format": "pt"})
    save_file({"words": words, "logits": logits}, f"{folder}/transformers_gpt2_io.safetensors")


if __name__ == "__main__":
    write_resnet(sys.argv[1])
    write_gpt2(sys.argv[1])
