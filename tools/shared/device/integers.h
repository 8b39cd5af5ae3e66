// Integers: bits, bytes, halves of sums and of products, as HIP's headers define them.
#pragma once
SIMGPU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIMGPU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIMGPU_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
SIMGPU_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
SIMGPU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIMGPU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
SIMGPU_INLINE unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
SIMGPU_INLINE unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
SIMGPU_INLINE unsigned __lastbit_u32_u64(unsigned long long x) { return __builtin_ffsll((long long)x) - 1; }

// The position of the n-th set bit from bit `base` on, upwards or, for n < 0, downwards; that of `base` itself for 0. -1: none.
SIMGPU_INLINE int __simgpu_nth(unsigned long long mask, int bits, int base, int n) {
    if (n == 0) return mask >> base & 1 ? base : -1;
    for (int at = base; at >= 0 && at < bits; at += n < 0 ? -1 : 1)
        if (mask >> at & 1 && (n < 0 ? ++n : --n) == 0) return at;
    return -1;
}
SIMGPU_INLINE int __fns32(unsigned mask, unsigned base, int n) { return __simgpu_nth(mask, 32, base, n); }
SIMGPU_INLINE int __fns64(unsigned long mask, unsigned base, int n) { return __simgpu_nth(mask, 64, base, n); }
SIMGPU_INLINE int __fns(unsigned mask, unsigned base, int n) { return __fns32(mask, base, n); }

#define SIMGPU_FIELD(SUFFIX, TYPE, BITS)                                                                              \
    SIMGPU_INLINE TYPE __bitextract_##SUFFIX(TYPE x, unsigned from, unsigned width) {                                 \
        from &= BITS - 1, width &= BITS - 1;                                                                          \
        return x >> from & (((TYPE)1 << width) - 1);                                                                  \
    }                                                                                                                 \
    SIMGPU_INLINE TYPE __bitinsert_##SUFFIX(TYPE x, TYPE field, unsigned from, unsigned width) {                      \
        TYPE mask = ((TYPE)1 << (width & (BITS - 1))) - 1;                                                            \
        return (x & ~(mask << (from & (BITS - 1)))) | (field & mask) << (from & (BITS - 1));                          \
    }
SIMGPU_FIELD(u32, unsigned, 32) SIMGPU_FIELD(u64, unsigned long, 64)

// The upper half of high:low shifted left, or the lower half of it shifted right; those with c clamp the shift to 32.
SIMGPU_INLINE unsigned long long __simgpu_pair(unsigned low, unsigned high) { return (unsigned long long)high << 32 | low; }
SIMGPU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return __simgpu_pair(low, high) << (by & 31) >> 32; }
SIMGPU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) { return __simgpu_pair(low, high) >> (by & 31); }
SIMGPU_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
    return __simgpu_pair(low, high) << (by < 32 ? by : 32) >> 32;
}
SIMGPU_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
    return __simgpu_pair(low, high) >> (by < 32 ? by : 32);
}
SIMGPU_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    unsigned made = 0;
    for (int at = 0; at < 4; ++at) made |= (unsigned)(__simgpu_pair(x, y) >> 8 * (which >> 4 * at & 7) & 255) << 8 * at;
    return made;
}

SIMGPU_INLINE int __mul24(int x, int y) { return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8)); }
SIMGPU_INLINE int __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
SIMGPU_INLINE int __mulhi(int x, int y) { return (long long)x * y >> 32; }
SIMGPU_INLINE unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
SIMGPU_INLINE long long __mul64hi(long long x, long long y) { return (__int128)x * y >> 64; }
SIMGPU_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) { return (unsigned __int128)x * y >> 64; }
SIMGPU_INLINE int __hadd(int x, int y) { return ((long long)x + y) >> 1; }
SIMGPU_INLINE int __rhadd(int x, int y) { return ((long long)x + y + 1) >> 1; }
SIMGPU_INLINE unsigned __uhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y) >> 1; }
SIMGPU_INLINE unsigned __urhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y + 1) >> 1; }
SIMGPU_INLINE unsigned __sad(int x, int y, unsigned sum) { return (x > y ? (unsigned)x - y : (unsigned)y - x) + sum; }
SIMGPU_INLINE unsigned __usad(unsigned x, unsigned y, unsigned sum) { return (x > y ? x - y : y - x) + sum; }
