// out[n,t,s] = sum_d q[n,t,d] k[n,s,d] gate[h,s-t+T-1,d] and its gradients; h: the table of n.
//
// Plain C++ for GCC and Clang, without torch's headers: fairseq_relpos/compiled.py builds it on
// first use. Vectors are the compiler's own extension, so nothing is left to its vectoriser and
// sums have one order, whatever the number of threads. An R x R tile of pairs meets only 2R - 1
// rows of the gate, and fits into the registers.
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

// Lanes are keys: a row of q meets k and the gate with d as their first index, so that nothing is
// summed across lanes. Queries of a tile are W apart, as its keys are: their offsets coincide.
// gate_t: [tables, D, 2 pad + T + S - 1 or more], `pad` columns of zeros to the left and right.
template <class X>
static void forward(const X* q, const X* k, const X* gate_t, X* out, I N, I tables, I T, I S, I D,
                    I width, I pad, I threads) {
  typedef typename Vec<X>::type vec;
  const I W = BYTES / sizeof(X), span = W * R;
  const I columns = ((S + span - 1) / span * R | 1) * W;  // odd: rows of k_t share no cache set
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    std::vector<X> k_t(D * columns);
#pragma omp for schedule(static)
    for (I n = 0; n < N; n++) {
      const X *gate = gate_t + n % tables * D * width, *q_n = q + n * T * D;
      for (I s = 0; s < S; s++)
        for (I d = 0; d < D; d++) k_t[d * columns + s] = k[(n * S + s) * D + d];
      for (I s = 0; s < S; s += span)
        for (I block = 0; block < T; block += span)
          for (I t = block; t < block + W && t < T; t++) {
            vec sum[R][R] = {}, g[2 * R - 1];
            const X* rows[R];
            for (I i = 0; i < R; i++) rows[i] = q_n + (t + i * W < T ? t + i * W : t) * D;
            const X* first = gate + pad + s - t + T - 1 - (R - 1) * W;
            for (I d = 0; d < D; d++) {
              for (I x = 0; x < 2 * R - 1; x++) g[x] = *(const vec*)(first + d * width + x * W);
              for (I j = 0; j < R; j++) {
                const vec key = *(const vec*)(&k_t[d * columns] + s + j * W);
                for (I i = 0; i < R; i++) sum[i][j] += rows[i][d] * (key * g[j - i + R - 1]);
              }
            }
            for (I i = 0; i < R && t + i * W < T; i++)
              for (I j = 0; j < R; j++) {
                X* to = out + (n * T + t + i * W) * S + s + j * W;
                const I left = S - s - j * W;
                if (left >= W) *(vec*)to = sum[i][j];
                else for (I x = 0; x < left; x++) to[x] = sum[i][j][x];
              }
          }
    }
  }
}

// A tile of A queries and B keys of one pair of sentence and head; lanes are d, a multiple of W.
// de: its gradient; gate and dgate begin at the row of the tile's last query and first key.
template <class X, int A, int B>
static inline void tile(const X* q, const X* k, const X* gate, const X* de, X* dq, X* dk, X* dgate,
                        I keys, I S, I D) {
  typedef typename Vec<X>::type vec;
  for (I d = 0; d < D; d += BYTES / sizeof(X)) {
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
          const X e = de[i * S + s + j];
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

// dq, dk and dgate [parts, H, T + S - 1, D] come as zeros; each part sums some of the sentences.
template <class X>
static void backward(const X* q, const X* k, const X* gate, const X* de, X* dq, X* dk, X* dgate,
                     I batch, I heads, I tables, I T, I S, I D, I parts, I threads) {
  const I L = T + S - 1, KEYS = 32;  // that stay in the first cache, with what they meet
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (I task = 0; task < parts * heads; task++) {
    const I part = task / heads, h = task % heads;
    const X* g = gate + h % tables * L * D;
    X* dg = dgate + task * L * D;
    for (I b = part * batch / parts; b < (part + 1) * batch / parts; b++) {
      const I n = b * heads + h;
      for (I s = 0; s < S; s += KEYS) {
        const I keys = S - s < KEYS ? S - s : KEYS, whole = keys / R * R;
        for (I t = 0, step; t < T; t += step) {
          step = t + R <= T ? R : 1;
          const I row = (s - t - step + T) * D, at_q = (n * T + t) * D, at_k = (n * S + s) * D;
          const X* e = de + (n * T + t) * S + s;
#define TILE(A, B, FIRST, KEYS) tile<X, A, B>(q + at_q, k + at_k + (FIRST) * D, \
    g + row + (FIRST) * D, e + (FIRST), dq + at_q, dk + at_k + (FIRST) * D, \
    dg + row + (FIRST) * D, KEYS, S, D)
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
}

extern "C" {
I vector_bytes() { return BYTES; }
I tile_rows() { return R; }
#define GATED(X) \
  void forward_##X(const X* q, const X* k, const X* gate_t, X* out, I N, I tables, I T, I S, I D, \
                   I width, I pad, I threads) { \
    forward<X>(q, k, gate_t, out, N, tables, T, S, D, width, pad, threads); \
  } \
  void backward_##X(const X* q, const X* k, const X* gate, const X* de, X* dq, X* dk, X* dgate, \
                    I batch, I heads, I tables, I T, I S, I D, I parts, I threads) { \
    backward<X>(q, k, gate, de, dq, dk, dgate, batch, heads, tables, T, S, D, parts, threads); \
  }
GATED(float)
GATED(double)
}
