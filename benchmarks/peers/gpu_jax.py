# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 in JAX, a peer of the GPU benchmarks: the whole training step in one jit, its buffers given back to it.

  gpu_jax.py --task resnet50 --batch 256 --size 224 --precision bf16 --scratch DIR

It takes the arguments of gpu.py and answers the same requests, but writes no profile.
"""

import argparse
import fcntl
import json
import os
import sys
import time

import peer

# Other processes use the device, too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = peer.require("jax")
jnp, lax = jax.numpy, jax.lax


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=["resnet50"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="side of an image")
    parser.add_argument("--precision", choices=["tf32", "bf16"], default="tf32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scratch", required=True, help="a folder shared with the other peers of this run")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_known_args()[0]


task = arguments()
if task.device == "cuda" and jax.default_backend() != "gpu":
    print(f"skip: the jax of {sys.executable} finds no GPU", flush=True)
    sys.exit(0)
jax.config.update("jax_default_matmul_precision", "tensorfloat32")
TYPE = jnp.bfloat16 if task.precision == "bf16" else jnp.float32


class Variables:
    """Makes variables by name while a model is built, and gives them while it runs."""

    def __init__(self, weights=None, moving=None):
        self.is_new = weights is None
        self.weights = weights or {}
        self.moving = moving or {}
        self.moved = {}
        self.key = jax.random.PRNGKey(0)

    def weight(self, name, make):
        if self.is_new:
            self.weights[name] = make()
        return self.weights[name]

    def move(self, name, value, start):
        if self.is_new:
            self.moving[name] = jnp.full(value.shape, start)
        self.moved[name] = 0.9 * self.moving[name] + 0.1 * value

    def normal(self, shape, deviation):
        self.key, key = jax.random.split(self.key)
        return deviation * jax.random.normal(key, shape)


def conv(v, name, x, filters, kernel, stride=1):
    shape = (kernel, kernel, x.shape[-1], filters)
    w = v.weight(name, lambda: v.normal(shape, (2 / (kernel * kernel * filters)) ** 0.5))
    pad = kernel // 2
    return lax.conv_general_dilated(x, w.astype(TYPE), (stride, stride), [(pad, pad), (pad, pad)],
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(v, name, x):
    channels = x.shape[-1]
    gamma = v.weight(name + "/gamma", lambda: jnp.ones(channels))
    beta = v.weight(name + "/beta", lambda: jnp.zeros(channels))
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)
    v.move(name + "/mean", mean, 0.0)
    v.move(name + "/variance", variance, 1.0)
    scale = gamma * lax.rsqrt(variance + 1e-5)
    return (wide * scale + (beta - mean * scale)).astype(TYPE)


def bottleneck(v, name, x, width, stride):
    y = jax.nn.relu(batch_norm(v, name + "/bn1", conv(v, name + "/conv1", x, width, 1)))
    y = jax.nn.relu(batch_norm(v, name + "/bn2", conv(v, name + "/conv2", y, width, 3, stride)))
    y = batch_norm(v, name + "/bn3", conv(v, name + "/conv3", y, 4 * width, 1))
    if stride != 1 or x.shape[-1] != 4 * width:
        x = batch_norm(v, name + "/bn", conv(v, name + "/shortcut", x, 4 * width, 1, stride))
    return jax.nn.relu(x + y)


def resnet50(v, x):
    x = jax.nn.relu(batch_norm(v, "bn0", conv(v, "conv0", x.astype(TYPE), 64, 7, 2)))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
                          ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            x = bottleneck(v, f"{stage}/{block}", x, 64 << stage, 2 if block == 0 and stage > 0 else 1)
    x = x.astype(jnp.float32).mean((1, 2)).astype(TYPE)
    w = v.weight("fc/w", lambda: v.normal((2048, 1000), 0.01))
    b = v.weight("fc/b", lambda: jnp.zeros(1000))
    return x @ w.astype(TYPE) + b.astype(TYPE)


def cost(weights, moving, image, label):
    v = Variables(weights, moving)
    scores = jax.nn.log_softmax(resnet50(v, image).astype(jnp.float32))
    return -jnp.take_along_axis(scores, label[:, None], 1).mean(), v.moved


def train(state, image, label):
    weights, momentum, moving = state
    (loss, moving), gradients = jax.value_and_grad(cost, has_aux=True)(weights, moving, image, label)
    momentum = jax.tree_util.tree_map(lambda m, g: 0.9 * m + g, momentum, gradients)
    weights = jax.tree_util.tree_map(lambda w, m: w - 0.01 * m, weights, momentum)
    return (weights, momentum, moving), loss


class Training:
    def __init__(self):
        keys = jax.random.split(jax.random.PRNGKey(1))
        self.image = jax.random.normal(keys[0], (task.batch, task.size, task.size, 3))
        self.label = jax.random.randint(keys[1], (task.batch,), 0, 1000)

        def build(image):
            v = Variables()
            resnet50(v, image)
            return v.weights, v.moving

        weights, moving = jax.jit(build)(self.image[:2])
        self.state = (weights, jax.tree_util.tree_map(jnp.zeros_like, weights), moving)
        self.train = jax.jit(train, donate_argnums=0)
        self.parameters = sum(w.size for w in weights.values())

    def run(self, steps):
        for _ in range(steps):
            self.state, self.loss = self.train(self.state, self.image, self.label)

    def wait(self):
        jax.block_until_ready(self.state)


def seconds_of(training, steps):
    start = time.perf_counter()
    training.run(steps)
    training.wait()
    return time.perf_counter() - start


def cpu_seconds_of(training, steps):
    training.wait()
    start = time.thread_time()
    training.run(steps)
    taken = time.thread_time() - start
    training.wait()
    return taken


def reply(training, words):
    if words[0] in ("memory", "held"):
        statistics = jax.devices()[0].memory_stats() or {}
        return statistics.get("peak_bytes_in_use" if words[0] == "memory" else "pool_bytes", 0)
    if words[0] == "cpu":
        return cpu_seconds_of(training, int(words[1]))
    if words[0] in ("profile", "step_memory"):
        return 0
    return seconds_of(training, int(words[0]))


def main():
    # One peer at a time uses the GPU while it sets up.
    with open(os.path.join(task.scratch, "gpu.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        jnp.zeros(1).block_until_ready()
        start = time.perf_counter()
        training = Training()
        seconds_of(training, 1)
        first_step = time.perf_counter() - start
        seconds_of(training, 2 if task.tiny else 5)
    print("ready", json.dumps({"parameters": training.parameters, "first_step": first_step}), flush=True)
    for line in sys.stdin:
        print(reply(training, line.split()), flush=True)
    os._exit(0)


main()
