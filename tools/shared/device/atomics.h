// Atomics of any type that clang has, and HIP's names for them: those with _system order other devices and the host, too.
#pragma once
#define SIMGPU_ATOMIC(NAME, BUILTIN, SCOPE)                                                                     \
    template <class T, class U> SIMGPU_INLINE T NAME(T *at, U value) {                                          \
        return BUILTIN(at, (T)value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_##SCOPE);                             \
    }
#define SIMGPU_ATOMICS(NAME, BUILTIN) SIMGPU_ATOMIC(NAME, BUILTIN, AGENT) SIMGPU_ATOMIC(NAME##_system, BUILTIN, SYSTEM)
SIMGPU_ATOMICS(atomicAdd, __hip_atomic_fetch_add)
SIMGPU_ATOMICS(atomicSub, __hip_atomic_fetch_sub)
SIMGPU_ATOMICS(atomicMin, __hip_atomic_fetch_min)
SIMGPU_ATOMICS(atomicMax, __hip_atomic_fetch_max)
SIMGPU_ATOMICS(atomicAnd, __hip_atomic_fetch_and)
SIMGPU_ATOMICS(atomicOr, __hip_atomic_fetch_or)
SIMGPU_ATOMICS(atomicXor, __hip_atomic_fetch_xor)
SIMGPU_ATOMICS(atomicExch, __hip_atomic_exchange)
SIMGPU_ATOMIC(safeAtomicAdd, __hip_atomic_fetch_add, AGENT)
SIMGPU_ATOMIC(safeAtomicMin, __hip_atomic_fetch_min, AGENT)
SIMGPU_ATOMIC(safeAtomicMax, __hip_atomic_fetch_max, AGENT)
SIMGPU_ATOMIC(unsafeAtomicAdd, __hip_atomic_fetch_add, AGENT)
SIMGPU_ATOMIC(unsafeAtomicMin, __hip_atomic_fetch_min, AGENT)
SIMGPU_ATOMIC(unsafeAtomicMax, __hip_atomic_fetch_max, AGENT)
SIMGPU_INLINE void atomicAddNoRet(float *at, float value) { atomicAdd(at, value); }
#define SIMGPU_SWAP(NAME, SCOPE)                                                                                        \
    template <class T, class U, class V> SIMGPU_INLINE T NAME(T *at, U expected, V value) {                            \
        T found = (T)expected;                                                                                          \
        __hip_atomic_compare_exchange_strong(at, &found, (T)value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,                  \
                                             __HIP_MEMORY_SCOPE_##SCOPE);                                               \
        return found;                                                                                                   \
    }
SIMGPU_SWAP(atomicCAS, AGENT) SIMGPU_SWAP(atomicCAS_system, SYSTEM)
SIMGPU_INLINE unsigned atomicInc(unsigned *at, unsigned last) {
    return __builtin_amdgcn_atomic_inc32(at, last, __ATOMIC_RELAXED, "agent");
}
SIMGPU_INLINE unsigned atomicDec(unsigned *at, unsigned last) {
    return __builtin_amdgcn_atomic_dec32(at, last, __ATOMIC_RELAXED, "agent");
}
