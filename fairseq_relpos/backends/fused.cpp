// softmax(e + mask) V for every form of the terms (fairseq_relpos/terms.py), and its gradients.
//
// The [T, S] logits of a sentence and head are made in tiles of some rows and columns that stay in
// the cache, and are made again in backward. Between the two only q, k, v, the output and two
// numbers a query are kept. Matrix products are those of the BLAS or of the oneDNN that torch brings, threads are
// those of torch's OpenMP: pointers to both come with each call, so this file needs no header and no library
// of torch. Vectors are the compiler's own extension, as in gated.cpp.
//
// A table has one row for each run of neighbouring offsets that share it: few, if far offsets are
// clipped. In a tile, BAND queries at once meet m + BAND - 1 neighbouring offsets: one product with
// the rows of their runs, whose results each query spreads over its own m offsets. For tables that
// meet keys it is BAND keys and n + BAND - 1 offsets, transposed.
#include "../gated/gated.cpp"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

typedef float F;
typedef vec_f V;
typedef int32_t vec_i __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t vec_u __attribute__((vector_size(BYTES), aligned(4), may_alias));

enum { LANES = BYTES / 4, STEP = 32, EACH = STEP / LANES, BAND = 32 };

// A 4-dimensional tensor whose last dimension is contiguous. The stride of what is shared is 0.
struct Tensor {
  F* at;
  I sentence, head, row;
  F* of(I b, I h, I t = 0) const { return at + b * sentence + h * head + t * row; }
  explicit operator bool() const { return at != nullptr; }
};

// Its integers have 32 or 64 bits; a small I, whose first half is its value, serves as both.
typedef void Gemm(const char*, const char*, const I*, const I*, const I*, const F*, const F*,
                  const I*, const F*, const I*, const F*, F*, const I*);
// oneDNN's product, as torch brings it: to (+)= x y, for each set of sizes and each thread by a kernel of its own
typedef void Brgemm(I, I, I, I, I, I, bool, const F*, const F*, F*, bool);
// the same of bfloat16, where y has its rows in pairs: (y_0j, y_1j) side by side
typedef uint16_t Half;
typedef void HalfBrgemm(I, I, I, I, I, I, bool, const Half*, const Half*, F*, bool);
typedef void Release(bool);
typedef void Parallel(void (*)(void*), void*, unsigned, unsigned);
typedef int Number();

// fused.py declares the same fields in the same order
struct Call {
  Tensor q, k, v, A, C, A_runs, C_runs, gate, gain, bias_row, bias, reset, cls, keys, extra, out, norm;
  Tensor grad, dq, dk, dv, dA, dC, dgate, dgain, dbias_row, dbias, dreset, dextra;
  I B, H, T, S, D, DV, product, causal, skip, window, rows, columns, dropped, seed, threads, large;
  double scale, lowest;
  Gemm* gemm;
  Brgemm* brgemm;
  HalfBrgemm* half_brgemm;
  Release* release;
  Parallel* parallel;
  Number *thread, *team;
};

// --- vectors ---

static inline V all(F x) { return V{} + x; }
static inline V load(const F* x) { return *(const V*)x; }
static inline void store(F* x, V y) { *(V*)x = y; }
static inline V load(const F* x, I left) {
  if (left >= LANES) return load(x);
  F some[LANES] = {};
  memcpy(some, x, left * sizeof(F));
  return load(some);
}
static inline V where(vec_i which, V x, V y) { return (V)(((vec_i)x & which) | ((vec_i)y & ~which)); }

// The smallest normal number: no result is between it and 0, because CPUs are slow with those.
static const F TINY = 1.17549435e-38f;

// e^x for x <= 88, with an error below 2 units in the last place; 0 where that is below TINY
static inline V exponential(V x) {
  const V magic = all(12582912.f);  // the sum with it is a whole number
  const V rounded = x * 1.44269504f + magic, n = rounded - magic;
  const V r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  V y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.f;
  y *= (V)(((vec_i)rounded + 127) << 23);
  return where(x < all(-87.33654f), V{}, y);
}

static inline V normal(V x) { return where((x < all(TINY)) & (x > all(-TINY)), V{}, x); }

static inline F sum_of(const V* x) {
  V total = x[0];
  for (I u = 1; u < EACH; u++) total += x[u];
  F sum = 0;
  for (I l = 0; l < LANES; l++) sum += total[l];
  return sum;
}

static inline F dot(const F* x, const F* y, I n) {
  V sums[EACH] = {};
  for (I j = 0; j < n; j += LANES) sums[j / LANES % EACH] += load(x + j, n - j) * load(y + j, n - j);
  return sum_of(sums);
}

// to += factor x; to needs no padding
static inline void add(F* to, const F* x, I n, F factor = 1) {
  I j = 0;
  for (; j + LANES <= n; j += LANES) store(to + j, load(to + j) + factor * load(x + j));
  for (; j < n; j++) to[j] += factor * x[j];
}

static inline F sum_of(const F* x, I n) {
  V sums[EACH] = {};
  I j = 0;
  for (; j + LANES <= n; j += LANES) sums[j / LANES % EACH] += load(x + j);
  F sum = j ? sum_of(sums) : 0;
  for (; j < n; j++) sum += x[j];
  return sum;
}

template <bool ADD> static inline void one(F* to, F x) { *to = ADD ? *to + x : x; }
template <bool ADD> static inline void fill(F* to, F x, I n) {
  I j = 0;
  for (; j + LANES <= n; j += LANES) store(to + j, ADD ? load(to + j) + x : all(x));
  for (; j < n; j++) one<ADD>(to + j, x);
}

// Copies rows between memory and scratch, which has them side by side.
static void gather(F* to, const F* from, I stride, I count, I width) {
  for (I r = 0; r < count; r++) memcpy(to + r * width, from + r * stride, width * sizeof(F));
}
static void scatter(F* to, I stride, const F* from, I count, I width, bool fresh) {
  for (I r = 0; r < count; r++)
    if (fresh) memcpy(to + r * stride, from + r * width, width * sizeof(F));
    else add(to + r * stride, from + r * width, width);
}

// --- dropout ---

// Whether a weight is kept is a hash of the seed, the sentence and head, the query and the key, so
// it does not depend on threads and tiles. A row has two keys of 32 bits from splitmix64. Words
// of 32 bits, hashed by two multiplications, serve two keys of the row each: word w of a group of
// 32 keys has its lower half for key w and its upper half for key 16 + w.
struct Dropout {
  uint32_t first, second;
  vec_u dropped;
  Dropout(I seed, I pair, I query, I levels) : dropped(vec_u{} + (uint32_t)levels) {
    uint64_t z = (uint64_t)seed + ((uint64_t)pair << 32 | (uint64_t)query) * 0x9E3779B97F4A7C15u;
    for (int round = 0; round < 2; round++) {
      z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
      z = (z ^ z >> 27) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      z += (uint64_t)seed;
    }
    first = (uint32_t)z, second = (uint32_t)(z >> 32);
  }
  // which[u]: all bits set where key j + u LANES .. is kept; j is a multiple of STEP
  inline void kept(I j, vec_i which[EACH]) const {
    vec_u lane;
    for (I l = 0; l < LANES; l++) lane[l] = l;
    for (I u = 0; u < EACH / 2; u++) {
      vec_u x = (lane + (uint32_t)(j / 2 + u * LANES)) * 0x9E3779B9u + first;
      x ^= x >> 16;
      x *= 0x21F0AAADu;
      x ^= (x >> 15) ^ second;
      x *= 0x735A2D97u;
      x ^= x >> 15;
      which[u] = (x & 0xFFFFu) >= dropped;
      which[u + EACH / 2] = (x >> 16) >= dropped;
    }
  }
};

// --- transposition of LANES x LANES numbers ---

#if defined(__GNUC__) && !defined(__clang__)
template <int H> static inline void exchange(V* x) {
  vec_i low, high;
  for (int l = 0; l < LANES; l++) {
    low[l] = l & H ? LANES + l - H : l;
    high[l] = l & H ? LANES + l : l + H;
  }
  for (int i = 0; i < LANES; i++)
    if (!(i & H)) {
      const V a = x[i], b = x[i + H];
      x[i] = __builtin_shuffle(a, b, low);
      x[i + H] = __builtin_shuffle(a, b, high);
    }
  exchange<H / 2>(x);
}
template <> inline void exchange<0>(V*) {}
static inline void transpose(V* x) { exchange<LANES / 2>(x); }
#else
static inline void transpose(V* x) {
  for (int i = 0; i < LANES; i++)
    for (int l = 0; l < i; l++) {
      const F swapped = x[i][l];
      x[i][l] = x[l][i];
      x[l][i] = swapped;
    }
}
#endif

// to[j][i] = factor from[i][j]
static void turn(F* to, const F* from, I stride, I count, I width, F factor) {
  I i = 0;
  for (; i + LANES <= count; i += LANES) {
    I j = 0;
    for (; j + LANES <= width; j += LANES) {
      V x[LANES];
      for (I l = 0; l < LANES; l++) x[l] = factor * load(from + (i + l) * stride + j);
      transpose(x);
      for (I l = 0; l < LANES; l++) store(to + (j + l) * count + i, x[l]);
    }
    for (; j < width; j++)
      for (I l = 0; l < LANES; l++) to[j * count + i + l] = factor * from[(i + l) * stride + j];
  }
  for (; i < count; i++)
    for (I j = 0; j < width; j++) to[j * count + i] = factor * from[i * stride + j];
}

// --- bfloat16 ---

// The nearest bfloat16, in the upper half of each word
static inline vec_u rounded(V x) {
  const vec_u bits = (vec_u)x;
  return bits + 0x7FFFu + (bits >> 16 & 1u);
}
static inline Half rounded(F x) { return (Half)(rounded(all(x))[0] >> 16); }
typedef Half vec_h __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

// `count` rows of `width` numbers times a factor, which become rows of `to_width`, with zeros at their ends
static void halve(Half* to, I to_width, const F* from, I stride, I count, I width, F factor) {
  for (I r = 0; r < count; r++, to += to_width, from += stride) {
    I j = 0;
    for (; j + LANES <= width; j += LANES)
      *(vec_h*)(to + j) = __builtin_convertvector(rounded(factor * load(from + j)) >> 16, vec_h);
    for (; j < to_width; j++) to[j] = j < width ? rounded(factor * from[j]) : 0;
  }
}

// Rows in pairs; an odd last one is paired with zeros
static void halve_pairs(Half* to, const F* from, I stride, I count, I width) {
  for (I r = 0; r < count; r += 2, from += 2 * stride, to += 2 * width) {
    const bool both = r + 1 < count;
    I j = 0;
    for (; j + LANES <= width; j += LANES) {
      const vec_u low = rounded(load(from + j)) >> 16;
      const vec_u high = both ? rounded(load(from + stride + j)) & 0xFFFF0000u : vec_u{};
      *(vec_u*)(to + 2 * j) = low | high;
    }
    for (; j < width; j++) to[2 * j] = rounded(from[j]), to[2 * j + 1] = both ? rounded(from[stride + j]) : 0;
  }
}

// --- offsets that share a table row ---

struct Span { I first, count; };

// A run is neighbouring offsets that share a row. A stretch is a long run, or neighbouring short
// ones, or neighbouring runs of one offset each.
struct Runs {
  enum { LONG = 8 };
  const int32_t* of;         // the run of each offset
  std::vector<int32_t> end;  // of the stretch that an offset is in
  Runs(const Tensor& runs, I L) : of((const int32_t*)runs.at), end(of ? L : 0) {
    std::vector<int32_t> size(count());
    for (I l = 0; of && l < L; l++) size[of[l]]++;
    const auto kind = [&](I l) { return size[of[l]] >= LONG ? -of[l] : 1 + (size[of[l]] > 1); };
    for (I l = L - 1; of && l >= 0; l--) end[l] = l + 1 < L && kind(l) == kind(l + 1) ? end[l + 1] : l + 1;
  }
  I count() const { return of ? of[end.size() - 1] + 1 : 0; }
  // the runs of m offsets from l on
  Span met(I l, I m) const { return {of[l], of[l + m - 1] - of[l] + 1}; }

  // to[j] (+)= values[run of offset l + j], for m offsets
  template <bool ADD> void spread(const F* values, I l, I m, F* to) const {
    for (const I last = l + m; l < last;) {
      const I stop = end[l] < last ? end[l] : last, size = stop - l, steps = of[stop - 1] - of[l];
      const F* from = values + of[l];
      if (!steps) fill<ADD>(to, *from, size);
      else if (steps < size - 1) for (I j = 0; j < size; j++) one<ADD>(to + j, values[of[l + j]]);
      else if (ADD) add(to, from, size);
      else memcpy(to, from, size * sizeof(F));
      to += size, l = stop;
    }
  }
  // values[run] = the sum of from[j] over the run's offsets l + j, for m offsets
  void collect(const F* from, I l, I m, F* values) const {
    for (const I last = l + m; l < last;) {
      const I stop = end[l] < last ? end[l] : last, size = stop - l, steps = of[stop - 1] - of[l];
      if (!steps) values[of[l]] = sum_of(from, size);
      else if (steps < size - 1) {
        F sum = 0;
        for (I j = 0; j < size; j++) {
          sum = (j && of[l + j] == of[l + j - 1] ? sum : 0) + from[j];
          values[of[l + j]] = sum;
        }
      } else memcpy(values + of[l], from, size * sizeof(F));
      from += size, l = stop;
    }
  }
};

// --- a thread's work ---

// Scratch memory that a thread keeps from call to call.
struct Scratch {
  F* at = nullptr;
  I size = 0, used = 0;
  ~Scratch() { free(at); }
  void room(I wanted) {
    used = 0;
    if (wanted <= size) return;
    free(at);
    at = (F*)aligned_alloc(64, (wanted * sizeof(F) + 63) / 64 * 64);
    size = wanted;
  }
  F* take(I count) {
    F* mine = at + used;
    used += (count + 15) / 16 * 16;
    return mine;
  }
};
static thread_local Scratch scratch;

static inline I at_least(I x, I multiple) { return (x + multiple - 1) / multiple * multiple; }

struct Work {
  const Call& c;
  const bool backward, raw;  // raw: the content is needed by itself
  const F scale, lowest;
  const I ld;
  F *Q, *K, *VV, *E, *A, *C, *O, *band, *by_run, *few_rows, *turned, *top, *sum;
  Half *half_x, *half_y;
  F *G, *X, *dQ, *dK, *dV, *dO, *along_bias, *along_gain, *along_gate;
  const F* gate_t;  // the transposed gates
  const I width;
  const Runs &A_runs, &C_runs;
  I b, h, i0, n, j0, m;

  Work(const Call& call, bool is_backward, const F* gates, const Runs& of_A, const Runs& of_C)
      : c(call), backward(is_backward), raw(backward && (c.product || c.gain)), scale(c.scale),
        lowest(c.lowest), ld(c.columns), gate_t(gates), width(Shape<F>::width(c.T + c.S - 1)),
        A_runs(of_A), C_runs(of_C) {
    const I tile = c.rows * ld, wide = ld > c.rows ? ld : c.rows;
    const I vectors = (2 * c.rows + 2 * ld) * (c.D + c.DV);
    // wide enough for the keys that `products` transposes, too
    I banded = BAND * (wide + BAND + LANES);
    if (banded < c.D * Shape<F>::span) banded = c.D * Shape<F>::span;
    const I deep = c.D > c.DV ? c.D : c.DV, rows_turned = (wide + BAND) * (deep > BAND ? deep : BAND);
    const bool turns = c.brgemm || c.half_brgemm;
    const I operand = !turns ? 0 : tile > rows_turned ? tile : rows_turned;
    const I halves = c.half_brgemm ? operand / 2 + 2 * wide : 0;  // an odd last row or column has a pair, too
    const I along = c.rows + ld + LANES, gates_along = c.gate ? along * c.D : 0;
    scratch.room(tile * tiles() + vectors + 2 * c.rows + 2 * banded + BAND * c.D + operand + 2 * halves + 2 * along +
                 gates_along + 26 * 16);
    Q = scratch.take(c.rows * c.D), K = scratch.take(ld * c.D);
    VV = scratch.take(ld * c.DV), O = scratch.take(c.rows * c.DV);
    E = scratch.take(tile);
    A = c.product && c.A ? scratch.take(tile) : nullptr;
    C = c.product && c.C ? scratch.take(tile) : nullptr;
    band = scratch.take(banded), by_run = scratch.take(banded), few_rows = scratch.take(BAND * c.D);
    turned = scratch.take(operand);
    half_x = (Half*)scratch.take(halves), half_y = (Half*)scratch.take(halves);
    top = scratch.take(c.rows), sum = scratch.take(c.rows);
    if (!backward) return;
    G = scratch.take(tile);
    X = raw ? scratch.take(tile) : E;
    dQ = scratch.take(c.rows * c.D), dK = scratch.take(ld * c.D);
    dV = scratch.take(ld * c.DV), dO = scratch.take(c.rows * c.DV);
    along_bias = scratch.take(along), along_gain = scratch.take(along);
    along_gate = scratch.take(gates_along);
  }
  I tiles() const { return 1 + backward + (raw ? 1 : 0) + (c.product ? (c.A ? 1 : 0) + (c.C ? 1 : 0) : 0); }

  // C[M, N] = alpha op(A) op(B) + beta C, all with rows side by side
  void gemm(char ta, char tb, I M, I N, I depth, F alpha, const F* x, I ldx, const F* y, I ldy,
            F beta, F* to, I ldto) const {
    const bool large = M * N * depth >= c.large;
    if (c.half_brgemm && large) {
      if (ta == 'T') turn(turned, x, ldx, depth, M, 1), x = turned, ldx = depth;
      else if (tb == 'T') turn(turned, y, ldy, N, depth, 1), y = turned, ldy = N;
      // A fresh product is scaled afterwards: its operands may be exact in bfloat16. The x of a sum, which
      // is no input, is rounded in any case.
      const I even = at_least(depth, 2);
      halve(half_x, even, x, ldx, M, depth, beta ? alpha : 1);
      halve_pairs(half_y, y, ldy, depth, N);
      c.half_brgemm(M, N, even, even, N, ldto, beta != 0, half_x, half_y, to, true);
      for (I r = 0; r < M && !beta && alpha != 1; r++)
        for (I j = 0; j < N; j++) to[r * ldto + j] *= alpha;
      return;
    }
    if (c.brgemm && large) {
      if (ta == 'T') turn(turned, x, ldx, depth, M, alpha), x = turned, ldx = depth;
      else if (tb == 'T') turn(turned, y, ldy, N, depth, alpha), y = turned, ldy = N;
      else if (alpha != 1) {
        for (I r = 0; r < depth; r++)
          for (I j = 0; j < N; j++) turned[r * N + j] = alpha * y[r * ldy + j];
        y = turned, ldy = N;
      }
      c.brgemm(M, N, depth, ldx, ldy, ldto, beta != 0, x, y, to, false);
      return;
    }
    c.gemm(&tb, &ta, &N, &M, &depth, &alpha, y, &ldy, x, &ldx, &beta, to, &ldto);
  }

  void pair(I item) { h = item / c.B, b = item % c.B; }
  I rows_from(I first) const { return c.T - first < c.rows ? c.T - first : c.rows; }
  void queries(I first) {
    i0 = first, n = rows_from(first);
    gather(Q, c.q.of(b, h, i0), c.q.row, n, c.D);
  }
  void keys(I first) {
    j0 = first, m = c.S - j0 < c.columns ? c.S - j0 : c.columns;
    gather(K, c.k.of(b, h, j0), c.k.row, m, c.D);
    gather(VV, c.v.of(b, h, j0), c.v.row, m, c.DV);
  }
  // the slot of query i0 + r
  I slot(I r) const { return i0 + r + c.S - c.T; }
  // Tiles of keys from the first one on, up to the end, have one that a query of the tile sees
  I first_key() const {
    const I first = c.window < 0 ? 0 : slot(0) - c.window;
    return first > 0 ? first / c.columns * c.columns : 0;
  }
  I end_of_keys() const {
    I end = c.S;
    if (c.window >= 0 && slot(n) + c.window < end) end = slot(n) + c.window;
    if (c.skip && slot(n) < end) end = slot(n);
    return end;
  }
  // the table row of key j0 and query i0 + r
  I offset(I r) const { return j0 - (i0 + r) + c.T - 1; }

  // to (+)= alpha q_i . table_(j-i)
  template <bool ADD> void query_rows(const F* table, I stride, F alpha, F* to) const {
    for (I s = 0; s < n; s += BAND) {
      const I count = n - s < BAND ? n - s : BAND;
      const Span met = A_runs.met(offset(s + count - 1), m + count - 1);
      gemm('N', 'T', count, met.count, c.D, alpha, Q + s * c.D, c.D, table + met.first * stride,
           stride, 0, band, met.count);
      for (I r = 0; r < count; r++)
        A_runs.spread<ADD>(band + r * met.count - met.first, offset(s + r), m, to + (s + r) * ld);
    }
  }

  // dtable_run += alpha g_x,run x. Few runs are long ones, whose rows nearly every block adds to. Their
  // sum in a block is made by itself first, which loses fewer bits: BLAS adds x by x to a single row.
  void table_back(const F* g, Span runs, const F* x, I count, F alpha, F* dtable) const {
    F *to = dtable + runs.first * c.D, *sum = runs.count < BAND ? few_rows : to;
    gemm('T', 'N', runs.count, c.D, count, alpha, g, runs.count, x, c.D, sum == to, sum, c.D);
    if (sum != to) add(to, sum, runs.count * c.D);
  }

  // dQ += alpha g_ij table_(j-i), dtable_(j-i) += alpha g_ij q_i
  void query_rows_back(const F* g, const F* table, I stride, F* dtable, F alpha) const {
    for (I s = 0; s < n; s += BAND) {
      const I count = n - s < BAND ? n - s : BAND;
      const Span met = A_runs.met(offset(s + count - 1), m + count - 1);
      memset(band, 0, count * met.count * sizeof(F));
      for (I r = 0; r < count; r++)
        A_runs.collect(g + (s + r) * ld, offset(s + r), m, band + r * met.count - met.first);
      gemm('N', 'N', count, c.D, met.count, alpha, band, met.count, table + met.first * stride, stride, 1,
           dQ + s * c.D, c.D);
      if (dtable) table_back(band, met, Q + s * c.D, count, alpha, dtable);
    }
  }

  // Element (r, j) of a tile is element n - 1 - r + j of row j of a band of `count` keys.
  template <bool ADD> void from_band(F* to, I width, I count) const {
    I r = 0;
    for (; r + LANES <= n; r += LANES) {
      I j = 0;
      for (; j + LANES <= count; j += LANES) {
        V x[LANES];
        for (I l = 0; l < LANES; l++) x[l] = load(band + (j + l) * width + n - LANES - r + j + l);
        transpose(x);
        for (I l = 0; l < LANES; l++) {
          F* row = to + (r + LANES - 1 - l) * ld + j;
          store(row, ADD ? load(row) + x[l] : x[l]);
        }
      }
      for (; j < count; j++)
        for (I l = 0; l < LANES; l++) one<ADD>(to + (r + l) * ld + j, band[j * width + n - 1 - r - l + j]);
    }
    for (; r < n; r++)
      for (I j = 0; j < count; j++) one<ADD>(to + r * ld + j, band[j * width + n - 1 - r + j]);
  }

  void to_band(const F* from, I width, I count) const {
    for (I j = 0; j < count; j++) {
      memset(band + j * width, 0, j * sizeof(F));
      memset(band + j * width + j + n, 0, (width - j - n) * sizeof(F));
    }
    I r = 0;
    for (; r + LANES <= n; r += LANES) {
      I j = 0;
      for (; j + LANES <= count; j += LANES) {
        V x[LANES];
        for (I l = 0; l < LANES; l++) x[l] = load(from + (r + LANES - 1 - l) * ld + j);
        transpose(x);
        for (I l = 0; l < LANES; l++) store(band + (j + l) * width + n - LANES - r + j + l, x[l]);
      }
      for (; j < count; j++)
        for (I l = 0; l < LANES; l++) band[j * width + n - 1 - r - l + j] = from[(r + l) * ld + j];
    }
    for (; r < n; r++)
      for (I j = 0; j < count; j++) band[j * width + n - 1 - r + j] = from[r * ld + j];
  }

  // Keys from s on that are computed at once: all that meet a single run, or else up to BAND
  I keys_at_once(I s) const {
    const I first = offset(n - 1) + s, stop = C_runs.end[first];
    const I alike = C_runs.of[stop - 1] == C_runs.of[first] ? stop - first - n + 1 : 0;
    const I most = alike > 0 ? alike : BAND;
    return most < m - s ? most : m - s;
  }

  // to (+)= alpha k_j . table_(j-i)
  template <bool ADD> void key_rows(const F* table, I stride, F alpha, F* to) const {
    for (I s = 0, count; s < m; s += count) {
      count = keys_at_once(s);
      const I width = n + count - 1, first = offset(n - 1) + s;
      const Span met = C_runs.met(first, width);
      F* at = met.count < width ? by_run : band;
      gemm('N', 'T', count, met.count, c.D, alpha, K + s * c.D, c.D, table + met.first * stride,
           stride, 0, at, met.count);
      if (met.count == 1) {
        for (I r = 0; r < n; r++)
          if (ADD) add(to + r * ld + s, at, count);
          else memcpy(to + r * ld + s, at, count * sizeof(F));
        continue;
      }
      if (at != band)
        for (I j = 0; j < count; j++)
          C_runs.spread<false>(at + j * met.count - met.first, first, width, band + j * width);
      from_band<ADD>(to + s, width, count);
    }
  }

  // dK += alpha g_ij table_(j-i), dtable_(j-i) += alpha g_ij k_j
  void key_rows_back(const F* g, const F* table, I stride, F* dtable, F alpha) const {
    for (I s = 0, count; s < m; s += count) {
      count = keys_at_once(s);
      const I width = n + count - 1, first = offset(n - 1) + s;
      const Span met = C_runs.met(first, width);
      F* at = met.count < width ? by_run : band;
      if (met.count == 1) {
        memset(at, 0, count * sizeof(F));
        for (I r = 0; r < n; r++) add(at, g + r * ld + s, count);
      } else {
        to_band(g + s, width, count);
        if (at != band)
          for (I j = 0; j < count; j++)
            C_runs.collect(band + j * width, first, width, at + j * met.count - met.first);
      }
      gemm('N', 'N', count, c.D, met.count, alpha, at, met.count, table + met.first * stride, stride, 1,
           dK + s * c.D, c.D);
      if (dtable) table_back(at, met, K + s * c.D, count, alpha, dtable);
    }
  }

  // The logits of the tile, masked, in E; -inf from column m on. In backward X, A and C keep the
  // factors.
  void logits() {
    if (c.gate)
      for (I s = 0; s < m; s += Shape<F>::span)
        products<F>(Q, K + s * c.D, gate_t + (c.gate.head ? h : 0) * c.D * width + offset(n - 1) + s + Shape<F>::span,
                    width, X_() + s, ld, n, m - s < Shape<F>::span ? m - s : Shape<F>::span, c.D, band);
    else
      gemm('N', 'T', n, m, c.D, scale, Q, c.D, K, c.D, 0, X_(), ld);
    if (c.product) {
      if (A) query_rows<false>(c.A.of(0, h), c.A.row, 1, A);
      if (C) key_rows<false>(c.C.of(0, h), c.C.row, 1, C);
    }
    if (c.gate || c.gain || c.product)
      for (I r = 0; r < n; r++) {
        F *e = E + r * ld, *x = X_() + r * ld;
        const F* gain = c.gain ? c.gain.of(0, h) + offset(r) : nullptr;
        for (I j = 0; j < m; j += LANES) {
          V y = load(x + j);
          if (c.gate) store(x + j, y *= scale);
          if (gain) y *= load(gain + j, m - j);
          if (A) y *= load(A + r * ld + j);
          if (C) y *= load(C + r * ld + j);
          store(e + j, y);
        }
      }
    if (!c.product) {
      if (c.A) query_rows<true>(c.A.of(0, h), c.A.row, scale, E);
      if (c.C) key_rows<true>(c.C.of(0, h), c.C.row, scale, E);
    }
    for (I r = 0; r < n; r++) {
      F* e = E + r * ld;
      if (c.bias_row) add(e, c.bias_row.of(0, h) + offset(r), m);
      if (c.bias) add(e, c.bias.of(b, h, i0 + r) + j0, m);
      if (c.reset) reset(r, e);
      if (c.extra) add(e, c.extra.of(b, h, i0 + r) + j0, m);
      if (c.keys) add(e, c.keys.of(b, 0) + j0, m);
      I j = m;
      if (c.causal) {
        j = slot(r) + 1 - j0;
        for (j = j < 0 ? 0 : j; j < m; j++) e[j] = lowest;
      }
      if (c.window >= 0) {
        const I before = slot(r) - c.window - j0, after = slot(r) + c.window + 1 - j0;
        for (j = 0; j < m && j < before; j++) e[j] = -INFINITY;
        for (j = after < 0 ? 0 : after; j < m; j++) e[j] = -INFINITY;
      }
      for (j = m; j < ld; j++) e[j] = -INFINITY;
    }
  }
  F* X_() const { return raw ? X : E; }

  // Where [CLS] is: slot 0, or the marks of `cls`, a byte a key. The bias of a query there is
  // reset[0] for every key, that of other queries is reset[1] where the key is [CLS].
  bool from_cls(I r) const {
    if (c.cls) return slot(r) >= 0 && marks()[slot(r)];
    return i0 + r == 0 && c.T == c.S;
  }
  const char* marks() const { return (const char*)c.cls.at + b * c.cls.sentence; }
  // the first column of the tile from `from` on whose logit in row r is reset, or m
  I next_reset(I r, I from, bool whole) const {
    if (whole) return from;
    if (!c.cls) return from + j0 == 0 ? 0 : m;
    const void* found = from < m ? memchr(marks() + j0 + from, 1, m - from) : nullptr;
    return found ? (const char*)found - marks() - j0 : m;
  }

  void reset(I r, F* e) const {
    const bool whole = from_cls(r);
    for (I j = next_reset(r, 0, whole); j < m; j = next_reset(r, j + 1, whole))
      e[j] = scale * dot(Q + r * c.D, K + j * c.D, c.D) + c.reset.of(0, h)[whole ? 0 : 1];
  }

  // Takes the gradients of logits that were reset out of the row
  void reset_back(I r, F* g) {
    F *q = Q + r * c.D, *dq = dQ + r * c.D, *dreset = c.dreset ? c.dreset.of(b, h) : nullptr;
    const bool whole = from_cls(r);
    for (I j = next_reset(r, 0, whole); j < m; j = next_reset(r, j + 1, whole)) {
      add(dq, K + j * c.D, c.D, scale * g[j]);
      add(dK + j * c.D, q, c.D, scale * g[j]);
      if (dreset) dreset[whole ? 0 : 1] += g[j];
      g[j] = 0;
    }
  }

  // --- forward ---

  void attend(I item, I first) {
    pair(item);
    queries(first);
    bool fresh = true;
    for (I start = first_key(), end = end_of_keys(); start < end; start += c.columns) {
      const I last_pair = loaded_pair, last = loaded_keys;
      j0 = start;
      if (last_pair != item || last != start) keys(start);
      else m = c.S - j0 < c.columns ? c.S - j0 : c.columns;
      loaded_pair = item, loaded_keys = start;
      logits();
      for (I r = 0; r < n; r++) weigh(r, fresh);
      gemm('N', 'N', n, c.DV, m, 1, E, ld, VV, c.DV, fresh ? 0 : 1, O, c.DV);
      fresh = false;
    }
    const F larger = (F)(65536. / (65536 - c.dropped));
    for (I r = 0; r < n; r++) {
      F *o = O + r * c.DV, *out = c.out.of(b, h, i0 + r);
      const F factor = larger / sum[r];
      for (I d = 0; d < c.DV; d++) out[d] = o[d] * factor;
      if (c.norm) norm(r)[0] = top[r], norm(r)[1] = sum[r];
    }
  }
  I loaded_pair = -1, loaded_keys = -1;
  // the largest logit of the row, and the sum of exp(e - largest). One number, their log-sum-exp, would lose bits of
  // every weight where the weights are much alike
  F* norm(I r) const { return (F*)c.norm.at + 2 * ((b * c.H + h) * c.T + i0 + r); }

  // Turns a row of logits into weights relative to the largest logit so far
  void weigh(I r, bool fresh) {
    F* e = E + r * ld;
    V most[EACH];
    for (I u = 0; u < EACH; u++) most[u] = load(e + u * LANES);
    for (I j = STEP; j < ld; j += STEP)
      for (I u = 0; u < EACH; u++) {
        const V x = load(e + j + u * LANES);
        most[u] = where(x > most[u], x, most[u]);
      }
    F highest = fresh ? -INFINITY : top[r];
    for (I u = 0; u < EACH; u++)
      for (I l = 0; l < LANES; l++) highest = most[u][l] > highest ? most[u][l] : highest;
    const V base = all(highest == -INFINITY ? 0 : highest);
    V sums[EACH] = {};
    if (c.dropped) {
      const Dropout dropout(c.seed, b * c.H + h, i0 + r, c.dropped);
      for (I j = 0; j < ld; j += STEP) {
        vec_i kept[EACH];
        dropout.kept(j0 + j, kept);
        for (I u = 0; u < EACH; u++) {
          const V p = exponential(load(e + j + u * LANES) - base);
          sums[u] += p;
          store(e + j + u * LANES, (V)((vec_i)p & kept[u]));
        }
      }
    } else {
      for (I j = 0; j < ld; j += STEP)
        for (I u = 0; u < EACH; u++) {
          const V p = exponential(load(e + j + u * LANES) - base);
          sums[u] += p;
          store(e + j + u * LANES, p);
        }
    }
    const F total = sum_of(sums);
    if (fresh) {
      sum[r] = total;
    } else {
      const F less = exponential(all(top[r]) - base)[0];
      sum[r] = sum[r] * less + total;
      for (I d = 0; d < c.DV; d++) O[r * c.DV + d] *= less;
    }
    top[r] = highest;
  }

  // --- backward ---

  // What several sentences add to: their gradients' first row for this head
  struct Shared {
    F *A, *C, *gate, *gain, *bias_row;
  };

  void differentiate(I item, const Shared& to) {
    pair(item);
    if (c.dreset) memset(c.dreset.of(b, h), 0, 2 * sizeof(F));
    for (I start = 0; start < c.S; start += c.columns) {
      keys(start);
      memset(dK, 0, m * c.D * sizeof(F));
      memset(dV, 0, m * c.DV * sizeof(F));
      for (I first = 0; first < c.T; first += c.rows) {
        i0 = first, n = rows_from(first);
        if (start < first_key() || start >= end_of_keys()) continue;
        queries(first);
        rows_back();
        tile_back(to);
        if (c.dq) scatter(c.dq.of(b, h, i0), c.dq.row, dQ, n, c.D, start == first_key());
      }
      if (c.dk) scatter(c.dk.of(b, h, j0), c.dk.row, dK, m, c.D, true);
      if (c.dv) scatter(c.dv.of(b, h, j0), c.dv.row, dV, m, c.DV, true);
    }
  }

  // dO, and sum_j w_ij dw_ij = dO . O in `top`
  void rows_back() {
    gather(dO, c.grad.of(b, h, i0), c.grad.row, n, c.DV);
    if (c.S > ld)
      for (I r = 0; r < n; r++) top[r] = dot(dO + r * c.DV, c.out.of(b, h, i0 + r), c.DV);
    memset(dQ, 0, n * c.D * sizeof(F));
  }

  void tile_back(const Shared& to) {
    const F larger = (F)(65536. / (65536 - c.dropped));
    logits();
    gemm('N', 'T', n, m, c.DV, larger, dO, c.DV, VV, c.DV, 0, G, ld);
    for (I r = 0; r < n; r++) unweigh(r);
    if (c.dv) gemm('T', 'N', m, c.DV, n, larger, E, ld, dO, c.DV, 1, dV, c.DV);
    if (c.dextra)
      for (I r = 0; r < n; r++) add(c.dextra.of(b, h, i0 + r) + j0, G + r * ld, m);
    if (c.reset)
      for (I r = 0; r < n; r++) reset_back(r, G + r * ld);
    if (c.dbias)
      for (I r = 0; r < n; r++) add(c.dbias.of(b, h, i0 + r) + j0, G + r * ld, m);
    // before factors_back, which a gain and products need, changes G; those of products come after it
    if (c.A && !c.product) query_rows_back(G, c.A.of(0, h), c.A.row, to.A, scale);
    if (c.C && !c.product) key_rows_back(G, c.C.of(0, h), c.C.row, to.C, scale);
    // along the diagonals, some rows are summed by themselves first: that loses fewer bits. A gate's tile is, too
    for (I s = 0; s < n && (to.bias_row || c.product || c.gain); s += BAND) {
      const I last = s + BAND < n ? s + BAND : n, begin = offset(last - 1), count = last - s + m - 1;
      memset(along_bias, 0, count * sizeof(F));
      memset(along_gain, 0, count * sizeof(F));
      for (I r = s; r < last; r++) {
        if (to.bias_row) add(along_bias + offset(r) - begin, G + r * ld, m);
        if (c.product || c.gain) factors_back(r, along_gain + offset(r) - begin);
      }
      if (to.bias_row) add(to.bias_row + begin, along_bias, count);
      if (to.gain) add(to.gain + begin, along_gain, count);
    }
    if (c.A && c.product) query_rows_back(A, c.A.of(0, h), c.A.row, to.A, 1);
    if (c.C && c.product) key_rows_back(C, c.C.of(0, h), c.C.row, to.C, 1);
    if (c.gate) {
      for (I r = 0; r < n; r++)
        for (I j = 0; j < m; j += LANES) store(G + r * ld + j, load(G + r * ld + j) * scale);
      const I first = offset(n - 1), count = (n + m - 1) * c.D;
      memset(along_gate, 0, count * sizeof(F));
      ::backward<F>(Q, K, c.gate.of(0, h, first), G, ld, dQ, dK, along_gate, 1, 1, n, m, c.D, 1, 1);
      add(to.gate + first * c.D, along_gate, count);
    } else {
      gemm('N', 'N', n, c.D, m, scale, G, ld, K, c.D, 1, dQ, c.D);
      gemm('T', 'N', m, c.D, n, scale, G, ld, Q, c.D, 1, dK, c.D);
    }
  }

  // From the logits in E and dw in G: the weights that were kept in E, the logits' gradient in G
  void unweigh(I r) const {
    F *e = E + r * ld, *g = G + r * ld;
    const F highest = norm(r)[0], share = 1 / norm(r)[1];
    const Dropout dropout(c.seed, b * c.H + h, i0 + r, c.dropped);
    const vec_i sign = vec_i{} + INT32_MIN;
    V sums[EACH] = {}, products[EACH] = {};
    for (I j = 0; j < ld; j += STEP) {
      vec_i kept[EACH];
      if (c.dropped) dropout.kept(j0 + j, kept);
      for (I u = 0; u < EACH; u++) {
        V p = share * exponential(load(e + j + u * LANES) - highest);
        V dw = load(g + j + u * LANES);
        sums[u] += p;
        if (c.dropped) {
          dw = (V)((vec_i)dw & kept[u]);
          store(g + j + u * LANES, dw);
        }
        products[u] += where(p == V{}, V{}, p * dw);  // columns from m on hold no dw
        if (c.dropped) p = (V)((vec_i)p | (sign & ~kept[u]));  // a dropped weight is negative
        store(e + j + u * LANES, p);
      }
    }
    // with all keys at hand, this sum loses fewer bits than dO . O
    const V delta = all(c.S <= ld ? sum_of(products) / sum_of(sums) : top[r]);
    for (I j = 0; j < ld; j += LANES) {
      const V p = load(e + j);
      const V positive = c.dropped ? (V)((vec_i)p & ~sign) : p;
      store(g + j, normal(positive * (load(g + j) - delta)));
      if (c.dropped) store(e + j, where(p < V{}, V{}, p));
    }
  }

  // G: from the logits' gradient to that of s q.k; those of the other factors in A and C
  void factors_back(I r, F* to_gain) const {
    F *g = G + r * ld, *a = A ? A + r * ld : nullptr, *z = C ? C + r * ld : nullptr;
    const F *x = X + r * ld, *gain = c.gain ? c.gain.of(0, h) + offset(r) : nullptr;
    for (I j = 0; j < m; j += LANES) {
      const V de = load(g + j), s = load(x + j), one = all(1);
      const V factor = gain ? load(gain + j, m - j) : one;
      const V by_query = a ? load(a + j) : one, by_key = z ? load(z + j) : one;
      const V from_content = de * (s * factor), to_content = de * (by_query * by_key);
      if (a) store(a + j, normal(from_content * by_key));
      if (z) store(z + j, normal(from_content * by_query));
      store(g + j, to_content * factor);
      const V change = to_content * s;
      if (j + LANES <= m) store(to_gain + j, load(to_gain + j) + change);
      else for (I l = 0; j + l < m; l++) to_gain[j + l] += change[l];
    }
  }
};

// --- threads ---

// Runs work(number) for each number below `parts`. The result of a part does not depend on how
// many threads there really are. Returns 1 if one failed: oneDNN throws, and an exception that left a
// thread would end the process.
template <class Work> static int run_parts(const Call& c, I parts, const Work& work) {
  struct Job {
    const Call& c;
    I parts;
    const Work& work;
    std::atomic<int> failed{0};
    void run(I first, I step) {
      try {
        for (I part = first; part < parts; part += step) work(part);
      } catch (...) {
        failed = 1;
      }
    }
  } job{c, parts, work};
  if (parts <= 1 || !c.parallel) job.run(0, 1);
  else
    c.parallel([](void* data) { ((Job*)data)->run(((Job*)data)->c.thread(), ((Job*)data)->c.team()); }, &job,
               (unsigned)parts, 0);
  return job.failed;
}

// Backward goes through heads, and sentences within each, in one order, cut into one run for each
// thread. A table's gradient belongs to the thread that meets it first. Others add to a copy of
// their own, of which each needs one at most, and these are summed in the threads' order.
struct Copies {
  std::vector<F> numbers;
  F* whole[5];
  I sizes[5];
};

static std::vector<F> transposed_gates(const Call& c) {
  const I L = c.T + c.S - 1, tables = !c.gate ? 0 : c.gate.head ? c.H : 1, size = c.D * Shape<F>::width(L);
  std::vector<F> to(tables * size);
  for (I table = 0; table < tables; table++)
    transpose_gate<F>(c.gate.of(0, table), &to[table * size], L, c.D);
  return to;
}

extern "C" {

I lanes() { return LANES; }
I size_of_call() { return sizeof(Call); }

// 1 where oneDNN's product of bfloat16 runs on this CPU
int multiplies_halves(HalfBrgemm* brgemm, Release* release) {
  enum { M = 33, N = 95, DEPTH = 66 };
  const std::vector<Half> x(M * DEPTH, rounded(2.f)), y(DEPTH * N, rounded(3.f));
  std::vector<F> to(M * N, 1);
  try {
    brgemm(M, N, DEPTH, DEPTH, N, N, true, x.data(), y.data(), to.data(), true);
    release(true);
  } catch (...) {
    return 0;
  }
  for (const F z : to)
    if (z != 6 * DEPTH + 1) return 0;
  return 1;
}

// 1 where oneDNN's product runs on this CPU
int multiplies(Brgemm* brgemm) {
  enum { N = 64 };
  std::vector<F> x(N * N, 2), y(N * N, 3), to(N * N, 1);
  try {
    brgemm(N, N, N, N, N, N, true, x.data(), y.data(), to.data(), false);
  } catch (...) {
    return 0;
  }
  for (const F z : to)
    if (z != 6 * N + 1) return 0;
  return 1;
}

int attend(const Call* call) {
  const Call& c = *call;
  const I blocks = (c.T + c.rows - 1) / c.rows, tasks = c.B * c.H * blocks;
  const I parts = tasks < c.threads ? tasks : c.threads;
  const std::vector<F> gates = transposed_gates(c);
  const Runs A_runs(c.A_runs, c.T + c.S - 1), C_runs(c.C_runs, c.T + c.S - 1);
  return run_parts(c, parts, [&](I part) {
    Work work(c, false, gates.data(), A_runs, C_runs);
    for (I task = part * tasks / parts; task < (part + 1) * tasks / parts; task++)
      work.attend(task / blocks, task % blocks * c.rows);
    if (c.half_brgemm) c.release(true);
  });
}

int differentiate(const Call* call) {
  const Call& c = *call;
  // a dense bias for all sentences is too large for copies: whole heads then
  const bool together = (c.dbias && !c.dbias.sentence) || (c.dextra && !c.dextra.sentence);
  const I unit = together ? c.B : 1;
  const I units = c.B * c.H / unit, parts = units < c.threads ? units : c.threads;
  const I L = c.T + c.S - 1;
  const Runs A_runs(c.A_runs, L), C_runs(c.C_runs, L);
  const Tensor* shared[5] = {&c.dA, &c.dC, &c.dgate, &c.dgain, &c.dbias_row};
  const I sizes[5] = {A_runs.count() * c.D, C_runs.count() * c.D, L * c.D, L, L};
  std::vector<Copies> copies(parts);
  const std::vector<F> gates = transposed_gates(c);
  const int failed = run_parts(c, parts, [&](I part) {
    const I first = part * units / parts * unit, last = (part + 1) * units / parts * unit;
    Copies& mine = copies[part];
    I room = 0;
    for (I x = 0; x < 5; x++) {
      const bool begun = shared[x]->head ? first % c.B != 0 : first != 0;
      mine.whole[x] = *shared[x] && begun ? shared[x]->of(0, first / c.B) : nullptr;
      mine.sizes[x] = mine.whole[x] ? sizes[x] : 0;
      room += mine.sizes[x];
    }
    mine.numbers.assign(room, 0);
    Work work(c, true, gates.data(), A_runs, C_runs);
    for (I item = first; item < last; item++) {
      F *to[5], *copy = mine.numbers.data();
      for (I x = 0; x < 5; x++) {
        to[x] = *shared[x] ? shared[x]->of(0, item / c.B) : nullptr;
        if (to[x] && to[x] == mine.whole[x]) to[x] = copy;
        copy += mine.sizes[x];
      }
      work.differentiate(item, {to[0], to[1], to[2], to[3], to[4]});
    }
    if (c.half_brgemm) c.release(true);
  });
  for (const Copies& mine : copies) {
    const F* copy = mine.numbers.data();
    for (I x = 0; x < 5; x++) {
      if (mine.whole[x]) add(mine.whole[x], copy, mine.sizes[x]);
      copy += mine.sizes[x];
    }
  }
  return failed;
}

// 1 where a weight is kept, [B H, T, S] side by side
void keep_mask(F* to, I pairs, I T, I S, I dropped, I seed) {
  for (I pair = 0; pair < pairs; pair++)
    for (I t = 0; t < T; t++, to += S) {
      const Dropout dropout(seed, pair, t, dropped);
      for (I s = 0; s < S; s += STEP) {
        vec_i kept[EACH];
        dropout.kept(s, kept);
        for (I x = 0; x < STEP && s + x < S; x++) to[s + x] = kept[x / LANES][x % LANES] ? 1.f : 0.f;
      }
    }
}
}
