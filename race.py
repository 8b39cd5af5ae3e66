import numpy as np
import triton
import triton.language as tl

@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x + at, mask=at < n, other=0)
    old = tl.load(counts + bins)
    tl.store(counts + bins, old + 1)

x = np.random.default_rng(0).integers(0, 8, 1024).astype(np.int32)
counts = np.zeros(8, np.int32)
histogram[(4,)](x, counts, 1024, BLOCK=256)
