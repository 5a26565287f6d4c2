// Products of warpgroups, as prelude.h has the rest: it includes this behind what these functions need.
#pragma once

// Products of warpgroups: each thread computes its own sums from shared memory.
template <int row>
OCTAVO_DEVICE unsigned octavo_group_word(const void* shared, int r, int byte) {
  constexpr int chunks = row / 16;
  const int turn = chunks == 8 ? r & 7 : chunks == 4 ? (r >> 1) & 3 : (r >> 2) & 1;
  return *(const unsigned*)((const unsigned char*)shared + r * row + 16 * (byte / 16 ^ turn) + byte % 16);
}
template <int row, int tiles>
OCTAVO_DEVICE void octavo_group_multiply(int (&sums)[tiles][4], const void* a, int from_a, const void* b, int from_b) {
  const int at = from_b;
  a = (const unsigned char*)a + (from_a - from_b);
  const int lane = octavo_thread() % 32, first = octavo_thread() / 32 % 4 * 16 + lane / 4;
  unsigned left[2][8];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 8; ++k) left[i][k] = octavo_group_word<row>(a, first + 8 * i, at + 4 * k);
  }
  for (int j = 0; j < tiles; ++j) {
    for (int c = 0; c < 2; ++c) {
      for (int k = 0; k < 8; ++k) {
        const unsigned right = octavo_group_word<row>(b, 8 * j + lane % 4 * 2 + c, at + 4 * k);
        for (int i = 0; i < 2; ++i) sums[j][2 * i + c] = octavo_dot4_u8s8(left[i][k], right, sums[j][2 * i + c]);
      }
    }
  }
}
// Read from the shared memory when they are waited for, as late as the GPU may.
struct OctavoProducts {
  int (*sums)[4];
  const unsigned char *a, *b;
  int tiles, lead, lead_b, group;
  const unsigned* registers;  // of the thread, where rows come from registers
  unsigned were[4], rows[2][8];
};
struct OctavoRealProducts {
  float (*sums)[4];
  const unsigned char *a, *b;  // of the product's first row; both with rows of 128, 64 or 32 bytes
  int tiles, row, from_a, from_b, group, add;
  OctavoReal type;
};
struct OctavoPending {
  OctavoProducts all[256];
  OctavoRealProducts real[256];
  int count, reals, committed;
};
static OctavoPending octavo_pending[1024];
template <OctavoReal type, int row, int tiles>
OCTAVO_UNCHECKED static inline void octavo_group_multiply_real(float (&sums)[tiles][4], const void* a, int from_a, const void* b,
                                                               int from_b, int add = 1) {
  OctavoPending& mine = octavo_pending[octavo_thread()];
  const int rows_a = from_a / (8 * row) * (8 * row), rows_b = from_b / (8 * row) * (8 * row);
  if (mine.reals == 256 || (unsigned long)a % 128 != 0 || (unsigned long)b % 128 != 0 || from_a % 32 != 0 || from_b % 32 != 0)
    return octavo_hooks->trap("operands of a warpgroup's product that it cannot take");
  mine.real[mine.reals++] = {sums,
                             (const unsigned char*)a + rows_a,
                             (const unsigned char*)b + rows_b,
                             tiles,
                             row,
                             from_a - rows_a,
                             from_b - rows_b,
                             mine.committed,
                             add,
                             type};
}
template <int row, int tiles>
OCTAVO_DEVICE void octavo_group_multiply_f16(float (&sums)[tiles][4], const void* a, int from_a, const void* b, int from_b,
                                             int add = 1) {
  octavo_group_multiply_real<OctavoReal::f16, row>(sums, a, from_a, b, from_b, add);
}
template <int row, int tiles>
OCTAVO_DEVICE void octavo_group_multiply_bf16(float (&sums)[tiles][4], const void* a, int from_a, const void* b, int from_b,
                                              int add = 1) {
  octavo_group_multiply_real<OctavoReal::bf16, row>(sums, a, from_a, b, from_b, add);
}
template <int tiles>
OCTAVO_UNCHECKED static inline void octavo_group_multiply_apart(int (&sums)[tiles][4], const void* a, int from_a, int lead,
                                                                const void* b, int from_b, int lead_b) {
  a = (const unsigned char*)a + from_a;
  b = (const unsigned char*)b + from_b;
  OctavoPending& mine = octavo_pending[octavo_thread()];
  if ((unsigned long)a % 16 != 0 || lead % 16 != 0 || lead <= 0 || lead_b % 16 != 0 || lead_b <= 0 || (unsigned long)b % 16 != 0 ||
      mine.count == 256)
    return octavo_hooks->trap("operands of a warpgroup's product that it cannot take");
  mine.all[mine.count++] = {
      sums, (const unsigned char*)a, (const unsigned char*)b, tiles, lead, lead_b, mine.committed, nullptr, {}, {}};
}
struct OctavoRowsOfWarp {
  const unsigned* a;
  unsigned rows[2][8];
};
OCTAVO_UNCHECKED static inline void octavo_rows_together(void** lanes) {
  for (int l = 0; l < 32; ++l) {
    auto* mine = (OctavoRowsOfWarp*)lanes[l];
    if (mine == nullptr) return octavo_hooks->trap("a product of warpgroups without all lanes of a warp");
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 8; ++k) mine->rows[i][k] = ((OctavoRowsOfWarp*)lanes[l / 4 * 4 + k % 4])->a[k / 4 * 2 + i];
    }
  }
}
template <int tiles>
OCTAVO_UNCHECKED static inline void octavo_group_multiply_rows_at(int line, int (&sums)[tiles][4], const unsigned (&a)[4],
                                                                  const void* b, int from_b, int lead_b) {
  b = (const unsigned char*)b + from_b;
  OctavoPending& mine = octavo_pending[octavo_thread()];
  if (lead_b % 16 != 0 || lead_b <= 0 || (unsigned long)b % 16 != 0 || mine.count == 256)
    return octavo_hooks->trap("operands of a warpgroup's product that it cannot take");
  OctavoRowsOfWarp of_warp{a, {}};
  octavo_hooks->collective(0xffffffffu, line, &of_warp, octavo_rows_together);
  OctavoProducts& p = mine.all[mine.count++];
  p = {sums, nullptr, (const unsigned char*)b, tiles, 0, lead_b, mine.committed, a, {}, {}};
  for (int k = 0; k < 4; ++k) p.were[k] = a[k];
  for (int k = 0; k < 16; ++k) p.rows[k / 8][k % 8] = of_warp.rows[k / 8][k % 8];
}
#define octavo_group_multiply_rows(...) octavo_group_multiply_rows_at(__LINE__, __VA_ARGS__)
OCTAVO_UNCHECKED static inline void octavo_multiply_now(const OctavoProducts& p) {
  const int lane = octavo_thread() % 32, first = octavo_thread() / 32 % 4 * 16 + lane / 4;
  for (int k = 0; k < 4 && p.registers != nullptr; ++k) {
    if (p.registers[k] != p.were[k]) return octavo_hooks->trap("operands of products under way were overwritten");
  }
  for (int k = 0; k < 8; ++k) {
    unsigned left[2];
    for (int i = 0; i < 2; ++i) {
      left[i] = p.rows[i][k];
      if (p.registers != nullptr) continue;
      const unsigned char* at = p.a + (k / 4 * p.lead + (first + 8 * i) * 16 + k % 4 * 4);
      octavo_hooks->access(at, 4, 0, 1);
      left[i] = *(const unsigned*)at;
    }
    for (int j = 0; j < p.tiles; ++j) {
      for (int c = 0; c < 2; ++c) {
        const int row = 8 * j + lane % 4 * 2 + c;
        const unsigned char* at = p.b + (k / 4 * p.lead_b + row * 16 + k % 4 * 4);
        octavo_hooks->access(at, 4, 0, 1);
        for (int i = 0; i < 2; ++i) {
          for (int n = 0; n < 4; ++n)
            p.sums[j][2 * i + c] += (int)(left[i] >> (8 * n) & 255) * (int)(signed char)(*(const unsigned*)at >> (8 * n));
        }
      }
    }
  }
}
// Sixteen elements of a row, as floats.
OCTAVO_UNCHECKED static inline void octavo_group_row(const OctavoRealProducts& p, const unsigned char* matrix, int r, int from,
                                                     float (&out)[16]) {
  const int chunks = p.row / 16, turn = chunks == 8 ? r & 7 : chunks == 4 ? (r >> 1) & 3 : (r >> 2) & 1;
  for (int half = 0; half < 2; ++half) {
    const unsigned char* at = matrix + r * p.row + 16 * ((from / 16 + half) ^ turn);
    octavo_hooks->access(at, 16, 0, 1);
    for (int k = 0; k < 8; ++k)
      out[8 * half + k] =
          p.type == OctavoReal::f16 ? octavo_element<OctavoReal::f16>(at, k) : octavo_element<OctavoReal::bf16>(at, k);
  }
}
OCTAVO_UNCHECKED static inline void octavo_multiply_now(const OctavoRealProducts& p) {
  const int lane = octavo_thread() % 32, first = octavo_thread() / 32 % 4 * 16 + lane / 4;
  float left[2][16], right[16];
  for (int i = 0; i < 2; ++i) octavo_group_row(p, p.a, first + 8 * i, p.from_a, left[i]);
  for (int j = 0; j < p.tiles; ++j) {
    for (int c = 0; c < 2; ++c) {
      octavo_group_row(p, p.b, 8 * j + lane % 4 * 2 + c, p.from_b, right);
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += left[i][k] * right[k];
        float& into = p.sums[j][2 * i + c];
        into = p.add != 0 ? into + sum : sum;
      }
    }
  }
}
template <class Sum, int tiles>
OCTAVO_DEVICE void octavo_group_settle(Sum (&)[tiles][4]) {}
template <int count>
OCTAVO_DEVICE void octavo_registers_more() {}
template <int count>
OCTAVO_DEVICE void octavo_registers_fewer() {}
OCTAVO_DEVICE void octavo_group_begin() {}
OCTAVO_UNCHECKED static inline void octavo_group_commit() {
  ++octavo_pending[octavo_thread()].committed;
}
template <int groups>
OCTAVO_UNCHECKED static inline void octavo_group_wait() {
  OctavoPending& mine = octavo_pending[octavo_thread()];
  int left = 0;
  for (int i = 0; i < mine.count; ++i) {
    if (mine.all[i].group < mine.committed - groups)
      octavo_multiply_now(mine.all[i]);
    else
      mine.all[left++] = mine.all[i];
  }
  mine.count = left;
  left = 0;
  for (int i = 0; i < mine.reals; ++i) {
    if (mine.real[i].group < mine.committed - groups)
      octavo_multiply_now(mine.real[i]);
    else
      mine.real[left++] = mine.real[i];
  }
  mine.reals = left;
}
OCTAVO_DEVICE void octavo_group_publish() {}
