// out[n,t,s] = sum_d q[n,t,d] k[n,s,d] gate[h,s-t+T-1,d] and its gradients; h: the table of n.
//
// Plain C++ for GCC and Clang, without torch's headers: compiled.py builds it on first use.
// Vectors are the compiler's own extension, so nothing is left to its vectoriser and sums have one
// order, whatever the number of threads. An R x R tile of pairs meets only 2R - 1 rows of the gate,
// and fits into the registers. ld: the length of a row of out and of its gradient in memory.
#include <cstdint>
#include <vector>

#if defined(__AVX512F__)
enum { BYTES = 64, R = 4 };
#elif defined(__AVX__)
enum { BYTES = 32, R = 2 };
#elif defined(__aarch64__)
enum { BYTES = 16, R = 4 };
#else
enum { BYTES = 16, R = 2 };
#endif

typedef int64_t I;
typedef float vec_f __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef double vec_d __attribute__((vector_size(BYTES), aligned(8), may_alias));
template <class X> struct Vec;
template <> struct Vec<float> { typedef vec_f type; };
template <> struct Vec<double> { typedef vec_d type; };

template <class X> struct Shape {
  static const I W = BYTES / sizeof(X), span = W * R;
  // the length of a row of the transposed gate: a span more on both sides, which may hold anything;
  // an odd number of vectors, so that rows share no cache set
  static I width(I L) { return ((L + 2 * span + W - 1) / W | 1) * W; }
};

// gate [L, D] -> to [D, width], from its column `span` on
template <class X> static void transpose_gate(const X* gate, X* to, I L, I D) {
  const I width = Shape<X>::width(L);
  for (I d = 0; d < D; d++)
    for (I x = 0; x < L; x++) to[d * width + Shape<X>::span + x] = gate[x * D + d];
}

// Up to `span` keys, from k on, of one sentence and head. Lanes are keys: a row of q meets k and
// the gate with d as their first index, so that nothing is summed across lanes. Queries of a tile
// are W apart, as its keys are: their offsets coincide. table: the row of the transposed gate at
// the offset of the last query and the first key.
template <class X>
static void products(const X* q, const X* k, const X* table, I width, X* out, I ld, I T, I keys,
                     I D, X* k_t) {
  typedef typename Vec<X>::type vec;
  const I W = Shape<X>::W, span = Shape<X>::span;
  for (I j = 0; j < keys; j++)
    for (I d = 0; d < D; d++) k_t[d * span + j] = k[j * D + d];
  for (I block = 0; block < T; block += span)
    for (I t = block; t < block + W && t < T; t++) {
      vec sum[R][R] = {}, g[2 * R - 1];
      const X *rows[R], *first = table - t + T - 1 - (R - 1) * W;
      for (I i = 0; i < R; i++) rows[i] = q + (t + i * W < T ? t + i * W : t) * D;
      for (I d = 0; d < D; d++) {
        for (I x = 0; x < 2 * R - 1; x++) g[x] = *(const vec*)(first + d * width + x * W);
        for (I j = 0; j < R; j++) {
          const vec key = *(const vec*)&k_t[d * span + j * W];
          for (I i = 0; i < R; i++) sum[i][j] += rows[i][d] * (key * g[j - i + R - 1]);
        }
      }
      for (I i = 0; i < R && t + i * W < T; i++)
        for (I j = 0; j < R; j++) {
          X* to = out + (t + i * W) * ld + j * W;
          const I left = keys - j * W;
          if (left >= W) *(vec*)to = sum[i][j];
          else for (I x = 0; x < left; x++) to[x] = sum[i][j][x];
        }
    }
}

template <class X>
static void forward(const X* q, const X* k, const X* gate, X* out, I N, I tables, I T, I S, I D,
                    I threads) {
  const I L = T + S - 1, span = Shape<X>::span, width = Shape<X>::width(L);
  std::vector<X> gate_t(tables * D * width);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    std::vector<X> k_t(D * span);
#pragma omp for schedule(static)
    for (I table = 0; table < tables; table++)
      transpose_gate(gate + table * L * D, &gate_t[table * D * width], L, D);
#pragma omp for collapse(2) schedule(static)
    for (I n = 0; n < N; n++)
      for (I s = 0; s < S; s += span)
        products(q + n * T * D, k + (n * S + s) * D, &gate_t[n % tables * D * width + span + s],
                 width, out + n * T * S + s, S, T, S - s < span ? S - s : span, D, k_t.data());
  }
}

// A queries and all `keys`, B at a time, of one sentence and head; lanes are d, `depth` of D.
// de: their gradient; gate and dgate begin at the row of the last query and the first key.
template <class X, int A, int B>
static inline void tile(const X* q, const X* k, const X* gate, const X* de, X* dq, X* dk, X* dgate,
                        I keys, I ld, I D, I depth) {
  typedef typename Vec<X>::type vec;
  for (I d = 0; d < depth; d += BYTES / sizeof(X)) {
    vec query[A], grad[A];
    for (I i = 0; i < A; i++) query[i] = *(const vec*)(q + i * D + d);
    for (I i = 0; i < A; i++) grad[i] = *(const vec*)(dq + i * D + d);
    for (I s = 0; s + B <= keys; s += B) {
      vec key[B], to_key[B], g[A + B - 1], to_gate[A + B - 1];
      for (I j = 0; j < B; j++) key[j] = *(const vec*)(k + (s + j) * D + d);
      for (I j = 0; j < B; j++) to_key[j] = *(const vec*)(dk + (s + j) * D + d);
      for (I x = 0; x < A + B - 1; x++) g[x] = *(const vec*)(gate + (s + x) * D + d);
      for (I x = 0; x < A + B - 1; x++) to_gate[x] = *(const vec*)(dgate + (s + x) * D + d);
      for (I i = 0; i < A; i++)
        for (I j = 0; j < B; j++) {
          const X e = de[i * ld + s + j];
          const vec scaled = e * query[i];
          to_gate[j - i + A - 1] += scaled * key[j];
          to_key[j] += scaled * g[j - i + A - 1];
          grad[i] += e * (key[j] * g[j - i + A - 1]);
        }
      for (I j = 0; j < B; j++) *(vec*)(dk + (s + j) * D + d) = to_key[j];
      for (I x = 0; x < A + B - 1; x++) *(vec*)(dgate + (s + x) * D + d) = to_gate[x];
    }
    for (I i = 0; i < A; i++) *(vec*)(dq + i * D + d) = grad[i];
  }
}

// dq, dk and dgate [parts, tables, T + S - 1, D] come as zeros. A part sums some of the pairs of
// sentence and head that share a table; where there are more threads than that, they share d.
template <class X>
static void backward(const X* q, const X* k, const X* gate, const X* de, I ld, X* dq, X* dk,
                     X* dgate, I N, I tables, I T, I S, I D, I parts, I threads) {
  const I L = T + S - 1, W = BYTES / sizeof(X), KEYS = 32;  // that stay in the first cache
  const I pairs = N / tables, depth = threads > parts * tables ? W : D;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (threads > 1)
  for (I task = 0; task < parts * tables; task++)
    for (I d = 0; d < D; d += depth) {
      const I part = task / tables, table = task % tables;
      const X* g = gate + table * L * D;
      X* dg = dgate + task * L * D;
      for (I x = part * pairs / parts; x < (part + 1) * pairs / parts; x++)
        for (I s = 0; s < S; s += KEYS) {
          const I n = x * tables + table;
          const I keys = S - s < KEYS ? S - s : KEYS, whole = keys / R * R;
          for (I t = 0, step; t < T; t += step) {
            step = t + R <= T ? R : 1;
            const I row = (s - t - step + T) * D + d, at_q = (n * T + t) * D + d;
            const I at_k = (n * S + s) * D + d, at_e = (n * T + t) * ld + s;
#define TILE(A, B, FROM, COUNT) \
  tile<X, A, B>(q + at_q, k + at_k + FROM * D, g + row + FROM * D, de + at_e + FROM, dq + at_q, \
                dk + at_k + FROM * D, dg + row + FROM * D, COUNT, ld, D, depth)
            if (step == R) {
              TILE(R, R, 0, whole);
              TILE(R, 1, whole, keys - whole);
            } else {
              TILE(1, R, 0, whole);
              TILE(1, 1, whole, keys - whole);
            }
          }
        }
    }
}

extern "C" {
I vector_bytes() { return BYTES; }
#define GATED(X) \
  void forward_##X(const X* q, const X* k, const X* gate, X* out, I N, I tables, I T, I S, I D, \
                   I threads) { \
    forward<X>(q, k, gate, out, N, tables, T, S, D, threads); \
  } \
  void backward_##X(const X* q, const X* k, const X* gate, const X* de, X* dq, X* dk, X* dgate, \
                    I N, I tables, I T, I S, I D, I parts, I threads) { \
    backward<X>(q, k, gate, de, S, dq, dk, dgate, N, tables, T, S, D, parts, threads); \
  }
GATED(float)
GATED(double)
}
