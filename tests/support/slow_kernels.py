"""Kernels with one known best change each: the slow one, the line to change, the kind of advice, and the changed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SlowKernel:
    """A HIP kernel and its change."""

    kind: str  # of the top advice
    at: str  # text in the line that it names; "" for the whole launch
    text: str
    change: tuple[str, str]  # text to replace, and its replacement
    grid: Any
    block: Any
    arguments: tuple[Any, ...]  # arrays and numbers
    near: float = 0.1  # difference of the predicted time to the changed kernel's, as a fraction of the slow kernel's time

    @property
    def changed(self) -> str:
        """Returns the kernel with its change."""
        before, after = self.change
        assert self.text.count(before) >= 1, before
        return self.text.replace(before, after)


def floats(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


HEAD = "#include <hip/hip_runtime.h>\n"
TRANSPOSE = HEAD + """
#define N 512
__global__ void transpose(const float *in, float *out) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * N + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        out[(y + j) * N + x] = tile[threadIdx.x][threadIdx.y + j];
}
"""
ROWS = HEAD + """
#define ROWS 131072
#define LENGTH 32
__global__ void row_sums(const float *in, float *out) {
    int row = blockIdx.x * 1024 + threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < LENGTH; k++)
        sum += in[row * LENGTH + k];
    out[row] = sum;
}
"""
BARRIER = HEAD + """
__global__ void scale(const float *in, float *out, int count) {
    float sum = 0;
    for (int k = 0; k < count; k++) {
        float x = in[k * 256 + threadIdx.x], y = x;
        for (int n = 0; n < 4 + (threadIdx.x / 64 + k) % 4 * 16; n++)
            y = y * x + 0.5f;
        sum += y;
        __syncthreads();
    }
    out[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""
AT_ONCE = HEAD + """
__global__ void polynomial(const float *in, float *out, int count, int stride) {
    int i = blockIdx.x * 64 + threadIdx.x;
    float sum = 0, next = in[i];
#pragma unroll 1
    for (int k = 0; k < count; k++) {
        float x = in[k * stride + i];
        float y = x;
#pragma unroll
        for (int n = 0; n < 100; n++)
            y = y * x + 0.5f;
        sum += y;
    }
    out[i] = sum + next;
}
"""
PREFETCHED = "float x = next; next = in[(k + 1) * stride + i]; __builtin_amdgcn_sched_barrier(0);"
BIG_LDS = HEAD + """
#define SIZE 8192
__global__ void gather(const float *in, float *out, int count) {
    __shared__ float held[SIZE];
    int i = threadIdx.x;
    held[i] = blockIdx.x;
    float sum = 0;
    int at = (blockIdx.x * 64 + i) & 65535;
#pragma unroll 1
    for (int k = 0; k < count; k++) {
        at = (at + 64 + (int)in[at]) & 65535;
        sum += held[(i * 7 + k) & 4095] * at;
    }
    out[blockIdx.x * 64 + i] = sum;
}
"""
ATOMIC = HEAD + """
__global__ void totals(int *sums, int count) {
    int mine = 0;
    for (int k = 0; k < count; k++) {
        int x = k * threadIdx.x ^ mine;
        atomicAdd(sums + threadIdx.x * 32, x);
    }
    atomicAdd(sums + threadIdx.x * 32, mine);
}
"""
ONE_ADDRESS = HEAD + """
__global__ void sum(const int *in, int *total, int count) {
    int mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += 304 * 256)
        atomicAdd(total, in[i]);
    atomicAdd(total, mine);
}
"""
UNIFORM = HEAD + """
__global__ void filter(const float *__restrict__ in, const float *__restrict__ weights, float *out, int count) {
    int i = blockIdx.x * 256 + threadIdx.x;
    const float *mine = weights + threadIdx.x / 64 * count;
    float x = in[i], sum = 0;
    for (int k = 0; k < count; k++)
        sum = sum * x + mine[k];
    out[i] = sum;
}
"""
STRIDE = HEAD + """
struct Particle { float x, y, z, mass, vx, vy, vz, age; };
__global__ void weigh(const Particle *in, float *out, int count) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < count; k++)
        sum += in[k * 65536 + i].mass;
    out[i] = sum;
}
"""
DIVISION = HEAD + """
__global__ void digits(const unsigned *in, unsigned *out, unsigned base, int count) {
    int i = blockIdx.x * 256 + threadIdx.x;
    unsigned x = in[i], sum = 0;
    for (int k = 0; k < count; k++) {
        unsigned y = x + k;
        sum += y / base;
    }
    out[i] = sum;
}
"""
CHASE = HEAD + """
__global__ void chase(const int *next, int *out, int count) {
    int at = blockIdx.x * 64 + threadIdx.x, other = at + 32768;
#pragma unroll 1
    for (int k = 0; k < count; k++)
        at = next[at];
    out[blockIdx.x * 64 + threadIdx.x] = at + other;
}
"""
DOUBLE = HEAD + """
__global__ void iterate(const float *in, float *out, int count) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float x = in[i];
    for (int k = 0; k < count; k++)
        x = x * 1.0009765625 + 0.7;
    out[i] = x;
}
"""
KERNELS = {
    "transpose": SlowKernel(
        "bank-conflict", "= tile[threadIdx.x]", TRANSPOSE, ("tile[32][32]", "tile[32][33]"), (16, 16), (32, 8),
        (floats(512 * 512), floats(512 * 512)),
    ),
    "row_sums": SlowKernel(
        "uncoalesced", "sum += in[", ROWS, ("in[row * LENGTH + k]", "in[k * ROWS + row]"), 128, 1024,
        (floats(1 << 22), floats(1 << 17)),
    ),
    "barrier": SlowKernel(
        "barrier", "__syncthreads();", BARRIER, ("        __syncthreads();\n", ""), 608, 256,
        (floats(256 * 32), floats(608 * 256), 32),
    ),
    "load_volatile": SlowKernel(
        "latency", "y = y * x", AT_ONCE, ("float x = in[k * stride + i];", PREFETCHED), 1216, 64,
        (floats(18 * 1216 * 64), floats(1216 * 64), 16, 1216 * 64), 0.15,
    ),
    "occupancy": SlowKernel(
        "occupancy", "", BIG_LDS, ("#define SIZE 8192", "#define SIZE 5376"), 3648, 64, (floats(1 << 16), floats(3648 * 64), 16),
    ),
    "atomic": SlowKernel(
        "atomic", "* 32, x)", ATOMIC, ("atomicAdd(sums + threadIdx.x * 32, x);", "mine += x;"), 608, 256,
        (np.zeros(256 * 32, np.int32), 16),
    ),
    "one_address": SlowKernel(
        "atomic", "atomicAdd(total, in[i])", ONE_ADDRESS, ("atomicAdd(total, in[i]);", "mine += in[i];"), 304, 256,
        (np.zeros(1 << 18, np.int32), np.zeros(1, np.int32), 1 << 18), 0.15,
    ),
    "uniform": SlowKernel(
        "uniform-load", "mine[k]", UNIFORM, ("threadIdx.x / 64", "__builtin_amdgcn_readfirstlane(threadIdx.x / 64)"), 608, 256,
        (floats(608 * 256), floats(4 * 256), floats(608 * 256), 256),
    ),
    "stride": SlowKernel(
        "uncoalesced", "].mass", STRIDE, ("in[k * 65536 + i].mass", "((const float *)in)[k * 65536 + i]"), 256, 256,
        (floats(65536 * 8 * 8), floats(65536), 8),
    ),
    "division": SlowKernel(
        "division", "y / base", DIVISION, ("y / base", "__builtin_amdgcn_alignbit(0, y, base)"), 608, 256,
        (np.zeros(608 * 256, np.uint32), np.zeros(608 * 256, np.uint32), 10, 64),
    ),
    "chase": SlowKernel(
        "dependent-loads", "next[at]", CHASE,
        ("k < count; k++)\n        at = next[at];", "k < count / 2; k++)\n        at = next[at], other = next[other];"), 256, 64,
        (np.zeros(65536, np.int32), np.zeros(256 * 64, np.int32), 32), 1.0,
    ),
    "double": SlowKernel(
        "double", "1.0009765625", DOUBLE, ("1.0009765625 + 0.7", "1.0009765625f + 0.7f"), 608, 256,
        (floats(608 * 256), floats(608 * 256), 256),
    ),
}  # fmt: skip
