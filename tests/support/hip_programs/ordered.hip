// Workgroups that pass values through memory, each in a way that the memory model orders on every target.
#include "api.h"

typedef unsigned uint;
#define KERNEL extern "C" __global__ __launch_bounds__(256) void
#define lane threadIdx.x
#define group blockIdx.x
#define groups gridDim.x
#define LOAD(p, order) __hip_atomic_load(p, order, __HIP_MEMORY_SCOPE_AGENT)
#define STORE(p, value, order) __hip_atomic_store(p, value, order, __HIP_MEMORY_SCOPE_AGENT)
#define ADD(p, value, order) __hip_atomic_fetch_add(p, value, order, __HIP_MEMORY_SCOPE_AGENT)
#define RELAXED __ATOMIC_RELAXED
#define RELEASE __ATOMIC_RELEASE
#define ACQUIRE __ATOMIC_ACQUIRE
#define BOTH __ATOMIC_ACQ_REL

__device__ void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }  // __threadfence()

// The last block to count itself adds up what all blocks stored.
KERNEL last_block(const uint *in, uint *part, uint *out, uint *count) {
    __shared__ uint sums[256], last;
    sums[lane] = in[group * 256 + lane];
    __syncthreads();
    for (uint half = 128; half > 0; half /= 2) {
        if (lane < half) sums[lane] += sums[lane + half];
        __syncthreads();
    }
    if (lane == 0) {
        part[group] = sums[0];
        fence();  // releases
        last = ADD(count, 1u, RELAXED) == groups - 1;
        fence();  // acquires
    }
    __syncthreads();
    if (last && lane == 0) {
        uint sum = 0;
        for (uint i = 0; i < groups; i++) sum += part[i];
        out[0] = sum;
    }
}

// Stream-K: all threads of an odd block store what a thread of theirs then releases, and the even block before adds it.
KERNEL stream_k(const uint *in, uint *part, uint *out, uint *flags) {
    uint mine = in[group * 256 + lane];
    if (group % 2) {
        part[group * 256 + lane] = mine;
        __syncthreads();
        if (lane == 0) STORE(&flags[group], 1u, RELEASE);
    } else {
        if (lane == 0) while (LOAD(&flags[group + 1], ACQUIRE) == 0);
        __syncthreads();
        out[group * 256 + lane] = mine + part[(group + 1) * 256 + lane];
    }
}

// Split-K: the last block adds what all threads of all blocks stored.
KERNEL split_k(const uint *in, uint *part, uint *out, uint *count) {
    __shared__ uint last;
    part[group * 256 + lane] = in[group * 256 + lane];
    __syncthreads();
    if (lane == 0) last = ADD(count, 1u, BOTH) == groups - 1;
    __syncthreads();
    if (!last) return;
    uint sum = 0;
    for (uint i = 0; i < groups; i++) sum += part[i * 256 + lane];
    out[lane] = sum;
}

// As cooperative groups do: the first block's count flips the top bit when all others have counted.
__device__ void meet_grid(uint *arrived) {
    __syncthreads();
    if (lane == 0) {
        fence();  // releases
        uint old = ADD(arrived, group == 0 ? 0x80000000u - (groups - 1) : 1u, RELAXED);
        while (((old ^ LOAD(arrived, RELAXED)) & 0x80000000u) == 0) __builtin_amdgcn_s_sleep(1);
        fence();  // acquires
    }
    __syncthreads();
}
KERNEL grid_barrier(const uint *in, uint *part, uint *out, uint *arrived) {
    uint mine = in[group * 256 + lane];
    for (uint round = 0; round < 4; round++) {
        part[group * 256 + lane] = mine + round;
        meet_grid(arrived);
        mine += part[(group + 1) % groups * 256 + lane];
        meet_grid(arrived);
    }
    out[group * 256 + lane] = mine;
}

// Blocks take turns by tickets.
KERNEL ticket_lock(const uint *in, uint *part, uint *out, uint *lock) {
    for (uint round = 0; round < 3; round++) {
        if (lane == 0) {
            uint ticket = ADD(&lock[0], 1u, RELAXED);
            while (LOAD(&lock[1], ACQUIRE) != ticket);
        }
        __syncthreads();
        out[lane] += in[group * 256 + lane];
        __syncthreads();
        if (lane == 0) ADD(&lock[1], 1u, RELEASE);
        __syncthreads();
    }
}

// One thread of a block takes a lock by compare-and-swap, and gives it back by a store.
KERNEL spin_lock(const uint *in, uint *part, uint *out, uint *lock) {
    if (lane == 0) {
        uint free = 0;
        while (!__hip_atomic_compare_exchange_strong(lock, &free, 1u, ACQUIRE, RELAXED, __HIP_MEMORY_SCOPE_AGENT)) free = 0;
    }
    __syncthreads();
    out[lane] += in[group * 256 + lane];
    __syncthreads();
    if (lane == 0) STORE(lock, 0u, RELEASE);
}

// Persistent blocks take tiles by a counter, which orders nothing and needs not.
KERNEL persistent(const uint *in, uint *part, uint *out, uint *count) {
    __shared__ uint next;
    for (;;) {
        if (lane == 0) next = ADD(count, 1u, RELAXED);
        __syncthreads();
        uint tile = next;
        __syncthreads();
        if (tile >= groups) return;
        out[tile * 256 + lane] = in[tile * 256 + lane] * 3;
    }
}

// A scan by decoupled look-back, with values beside the flags: 1 is the block's sum, 2 all up to it.
KERNEL look_back(const uint *in, uint *part, uint *out, uint *flags) {
    __shared__ uint sums[256], before;
    sums[lane] = in[group * 256 + lane];
    __syncthreads();
    for (uint apart = 1; apart < 256; apart *= 2) {
        uint other = lane >= apart ? sums[lane - apart] : 0;
        __syncthreads();
        sums[lane] += other;
        __syncthreads();
    }
    if (lane == 0) {
        uint found = 0;
        if (group > 0) {
            part[2 * group + 1] = sums[255];
            STORE(&flags[group], 1u, RELEASE);
            for (uint at = group - 1;; at--) {
                uint flag;
                while ((flag = LOAD(&flags[at], ACQUIRE)) == 0);
                found += part[2 * at + (flag == 1)];
                if (flag == 2) break;
            }
        }
        before = found;
        part[2 * group] = found + sums[255];
        STORE(&flags[group], 2u, RELEASE);
    }
    __syncthreads();
    out[group * 256 + lane] = before + sums[lane];
}

// Block 0 hands block 1 one buffer of values after another, flags both ways.
KERNEL hand_over(const uint *in, uint *part, uint *out, uint *flags) {
    uint sum = 0;
    for (uint round = 1; round <= 5; round++) {
        if (group == 0) {
            if (lane == 0) while (LOAD(&flags[1], ACQUIRE) != round - 1);
            __syncthreads();
            part[lane] = in[lane] + round;
            __syncthreads();
            if (lane == 0) STORE(&flags[0], round, RELEASE);
        } else if (group == 1) {
            if (lane == 0) while (LOAD(&flags[0], ACQUIRE) != round);
            __syncthreads();
            sum += part[lane];
            __syncthreads();
            if (lane == 0) STORE(&flags[1], round, RELEASE);
        }
    }
    if (group == 1) out[lane] = sum;
}

// Each thread fences what it stored, then one counts; all fence again before they read.
KERNEL fence_each(const uint *in, uint *part, uint *out, uint *count) {
    __shared__ uint last;
    part[group * 256 + lane] = in[group * 256 + lane];
    fence();
    __syncthreads();
    if (lane == 0) last = ADD(count, 1u, RELAXED) == groups - 1;
    __syncthreads();
    if (!last) return;
    fence();
    uint sum = 0;
    for (uint i = 0; i < groups; i++) sum += part[i * 256 + lane];
    out[lane] = sum;
}

// The same with a volatile flag.
KERNEL volatile_flag(const uint *in, uint *part, uint *out, uint *flags) {
    if (group % 2) {
        part[group * 256 + lane] = in[group * 256 + lane];
        fence();
        __syncthreads();
        if (lane == 0) *(volatile uint *)&flags[group] = 1;
    } else {
        if (lane == 0) while (*(volatile uint *)&flags[group + 1] == 0);
        __syncthreads();
        fence();
        out[group * 256 + lane] = part[(group + 1) * 256 + lane];
    }
}

// Pairs of blocks add up: the second of a pair to arrive goes on with the sum.
KERNEL merge_tree(const uint *in, uint *part, uint *out, uint *arrived) {
    __shared__ uint second;
    uint sum = in[group * 256 + lane];
    part[group * 256 + lane] = sum;
    for (uint pair = group / 2, size = 1; size < groups; pair /= 2, size *= 2) {
        __syncthreads();
        if (lane == 0) second = ADD(&arrived[64 * size + pair], 1u, BOTH);
        __syncthreads();
        if (!second) return;
        uint first = pair * 2 * size;
        sum = part[first * 256 + lane] + part[(first + size) * 256 + lane];
        __syncthreads();
        part[first * 256 + lane] = sum;
    }
    out[lane] = sum;
}

// Block 0 fills slots, the others take one after another as they are filled.
KERNEL work_queue(const uint *in, uint *part, uint *out, uint *ends) {
    __shared__ uint taken;
    if (group == 0) {
        for (uint slot = 0; slot < 6; slot++) {
            part[slot * 256 + lane] = in[lane] + slot;
            __syncthreads();
            if (lane == 0) STORE(&ends[0], slot + 1, RELEASE);
        }
        return;
    }
    for (;;) {
        if (lane == 0) {
            taken = ADD(&ends[32], 1u, RELAXED);
            if (taken < 6) while (LOAD(&ends[0], ACQUIRE) <= taken);
        }
        __syncthreads();
        uint slot = taken;
        __syncthreads();
        if (slot >= 6) return;
        out[slot * 256 + lane] = part[slot * 256 + lane];
    }
}

const int BLOCKS = 8, COUNT = 256 * BLOCKS;
typedef void (*Kernel)(const uint *, uint *, uint *, uint *);

int main() {
    static uint values[COUNT], results[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = i % 97;
    Kernel all[] = {last_block, stream_k, split_k, grid_barrier, ticket_lock, spin_lock, persistent,
                    look_back, hand_over, fence_each, volatile_flag, merge_tree, work_queue};
    for (Kernel kernel : all) {
        uint *in, *part, *out, *flags;
        MUST(hipMalloc((void **)&in, sizeof values));
        MUST(hipMalloc((void **)&part, sizeof values));
        MUST(hipMalloc((void **)&out, sizeof values));
        MUST(hipMalloc((void **)&flags, sizeof values));
        MUST(hipMemcpy(in, values, sizeof values, hipMemcpyHostToDevice));
        MUST(hipMemset(part, 0, sizeof values));
        MUST(hipMemset(out, 0, sizeof values));
        MUST(hipMemset(flags, 0, sizeof values));
        kernel<<<BLOCKS, 256>>>(in, part, out, flags);
        MUST(hipMemcpy(results, out, sizeof results, hipMemcpyDeviceToHost));
        uint sum = 0;
        for (int i = 0; i < COUNT; i++) sum = 31 * sum + results[i];
        printf("%u\n", sum);
        MUST(hipFree(in));
        MUST(hipFree(part));
        MUST(hipFree(out));
        MUST(hipFree(flags));
    }
}
