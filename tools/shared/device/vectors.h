// Vectors: members, alignment and arithmetic by element as HIP has them; a number stands for a vector of it.
#pragma once
template <bool, class T> struct __simgpu_if {};
template <class T> struct __simgpu_if<true, T> { typedef T type; };
template <class T> using __simgpu_number = typename __simgpu_if<__is_arithmetic(T), int>::type;

template <class T, unsigned N> struct HIP_vector_type;
#define SIMGPU_COMMA ,
#define SIMGPU_INLINE __host__ __device__ __forceinline__
// each(f, b): f of every element and of b's.
#define SIMGPU_VECTOR(N, MEMBERS, ALIGNMENT, OF_EACH, OF_BOTH, ...)                                    \
    template <class T> struct alignas(ALIGNMENT) HIP_vector_type<T, N> {                               \
        typedef T value_type;                                                                          \
        union {                                                                                        \
            struct { T MEMBERS; };                                                                     \
            T data[N];                                                                                 \
        };                                                                                             \
        HIP_vector_type() = default;                                                                   \
        template <class U, __simgpu_number<U> = 0> SIMGPU_INLINE HIP_vector_type(U all) {              \
            each([&](T &element) { element = (T)all; });                                               \
        }                                                                                              \
        __VA_ARGS__                                                                                    \
        template <class F> SIMGPU_INLINE void each(F f) { OF_EACH; }                                   \
        template <class F> SIMGPU_INLINE void each(F f, const HIP_vector_type &b) { OF_BOTH; }         \
    };
SIMGPU_VECTOR(1, x, sizeof(T), f(x), f(x, b.x))
SIMGPU_VECTOR(2, x SIMGPU_COMMA y, 2 * sizeof(T), (f(x), f(y)), (f(x, b.x), f(y, b.y)),
              SIMGPU_INLINE constexpr HIP_vector_type(T x, T y) : x(x), y(y) {})
SIMGPU_VECTOR(3, x SIMGPU_COMMA y SIMGPU_COMMA z, sizeof(T), (f(x), f(y), f(z)), (f(x, b.x), f(y, b.y), f(z, b.z)),
              SIMGPU_INLINE constexpr HIP_vector_type(T x, T y, T z) : x(x), y(y), z(z) {})
SIMGPU_VECTOR(4, x SIMGPU_COMMA y SIMGPU_COMMA z SIMGPU_COMMA w, 4 * sizeof(T), (f(x), f(y), f(z), f(w)),
              (f(x, b.x), f(y, b.y), f(z, b.z), f(w, b.w)),
              SIMGPU_INLINE constexpr HIP_vector_type(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {})

#define SIMGPU_VECTORS_ONLY template <class T, unsigned N> SIMGPU_INLINE
#define SIMGPU_AND_NUMBERS template <class T, unsigned N, class U, __simgpu_number<U> = 0> SIMGPU_INLINE
#define SIMGPU_BY_ELEMENT(OP)                                                                                                      \
    SIMGPU_VECTORS_ONLY HIP_vector_type<T, N> &operator OP##=(HIP_vector_type<T, N> &a, const HIP_vector_type<T, N> &b) {          \
        a.each([](T &mine, const T &other) { mine = (T)(mine OP other); }, b);                                                     \
        return a;                                                                                                                  \
    }                                                                                                                              \
    SIMGPU_AND_NUMBERS HIP_vector_type<T, N> &operator OP##=(HIP_vector_type<T, N> &a, U b) {                                      \
        return a OP##= HIP_vector_type<T, N>(b);                                                                                   \
    }                                                                                                                              \
    SIMGPU_VECTORS_ONLY HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> a, const HIP_vector_type<T, N> &b) {               \
        return a OP##= b;                                                                                                          \
    }                                                                                                                              \
    SIMGPU_AND_NUMBERS HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> a, U b) { return a OP##= b; }                       \
    SIMGPU_AND_NUMBERS HIP_vector_type<T, N> operator OP(U a, const HIP_vector_type<T, N> &b) {                                    \
        HIP_vector_type<T, N> made(a);                                                                                             \
        return made OP##= b;                                                                                                       \
    }
SIMGPU_BY_ELEMENT(+) SIMGPU_BY_ELEMENT(-) SIMGPU_BY_ELEMENT(*) SIMGPU_BY_ELEMENT(/) SIMGPU_BY_ELEMENT(%)
SIMGPU_BY_ELEMENT(&) SIMGPU_BY_ELEMENT(|) SIMGPU_BY_ELEMENT(^) SIMGPU_BY_ELEMENT(<<) SIMGPU_BY_ELEMENT(>>)
#define SIMGPU_OF_EACH(OP)                                                                   \
    SIMGPU_VECTORS_ONLY HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> a) {         \
        a.each([](T &element) { element = (T)(OP element); });                               \
        return a;                                                                            \
    }
SIMGPU_OF_EACH(+) SIMGPU_OF_EACH(-) SIMGPU_OF_EACH(~)
#define SIMGPU_STEP(OP, BY)                                                                                       \
    SIMGPU_VECTORS_ONLY HIP_vector_type<T, N> &operator OP(HIP_vector_type<T, N> &a) { return a BY 1; }           \
    SIMGPU_VECTORS_ONLY HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> &a, int) {                        \
        HIP_vector_type<T, N> before = a;                                                                         \
        a BY 1;                                                                                                   \
        return before;                                                                                            \
    }
SIMGPU_STEP(++, +=) SIMGPU_STEP(--, -=)
SIMGPU_VECTORS_ONLY bool operator==(HIP_vector_type<T, N> a, const HIP_vector_type<T, N> &b) {
    bool same = true;
    a.each([&](const T &mine, const T &other) { same = same && mine == other; }, b);
    return same;
}
SIMGPU_AND_NUMBERS bool operator==(const HIP_vector_type<T, N> &a, U b) { return a == HIP_vector_type<T, N>(b); }
SIMGPU_AND_NUMBERS bool operator==(U a, const HIP_vector_type<T, N> &b) { return HIP_vector_type<T, N>(a) == b; }
SIMGPU_VECTORS_ONLY bool operator!=(const HIP_vector_type<T, N> &a, const HIP_vector_type<T, N> &b) { return !(a == b); }
SIMGPU_AND_NUMBERS bool operator!=(const HIP_vector_type<T, N> &a, U b) { return !(a == b); }
SIMGPU_AND_NUMBERS bool operator!=(U a, const HIP_vector_type<T, N> &b) { return !(a == b); }

#define SIMGPU_VECTORS(T, NAME)                                                                                               \
    typedef HIP_vector_type<T, 1> NAME##1;                                                                                    \
    typedef HIP_vector_type<T, 2> NAME##2;                                                                                    \
    typedef HIP_vector_type<T, 3> NAME##3;                                                                                    \
    typedef HIP_vector_type<T, 4> NAME##4;                                                                                    \
    SIMGPU_INLINE NAME##1 make_##NAME##1(T x) { return NAME##1(x); }                                                          \
    SIMGPU_INLINE NAME##2 make_##NAME##2(T x, T y) { return NAME##2(x, y); }                                                  \
    SIMGPU_INLINE NAME##3 make_##NAME##3(T x, T y, T z) { return NAME##3(x, y, z); }                                          \
    SIMGPU_INLINE NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4(x, y, z, w); }
SIMGPU_VECTORS(signed char, char) SIMGPU_VECTORS(unsigned char, uchar) SIMGPU_VECTORS(short, short)
SIMGPU_VECTORS(unsigned short, ushort) SIMGPU_VECTORS(int, int) SIMGPU_VECTORS(unsigned, uint)
SIMGPU_VECTORS(long, long) SIMGPU_VECTORS(unsigned long, ulong) SIMGPU_VECTORS(long long, longlong)
SIMGPU_VECTORS(unsigned long long, ulonglong) SIMGPU_VECTORS(float, float) SIMGPU_VECTORS(double, double)
