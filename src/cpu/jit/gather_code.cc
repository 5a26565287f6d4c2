// The loop over rows: for each chunk of 64 bytes the windows of the source, permuted and merged, then the stores.
// Registers: rdi args, rsi source, r8..r11 stores, rcx rows left, rax; k1 tail of a short stored row, k2 of a short source row, k3
// merges; zmm0, zmm1 data, zmm2 controls that did not find a register, zmm4..31 controls.
#include "cpu/jit/gather.h"

namespace octavo::cpu::jit {
namespace {

constexpr int kFirstControl = 4, kLastControl = 31;

std::uint64_t low_bytes(std::int64_t n) {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

}  // namespace

std::size_t emit_gather(Code& c, ConstantPool& pool, const GatherSetting& p) {
  const std::size_t at = c.getSize();
  const std::array<Xbyak::Reg64, kGatherStores> to{c.r8, c.r9, c.r10, c.r11};
  const auto zmm = [](int i) { return Xbyak::Zmm(i); };
  const bool short_row = p.row_bytes < 64, short_source = p.source_bytes < 64;
  if (short_row) {
    c.mov(c.rax, low_bytes(p.row_bytes));
    c.kmovq(c.k1, c.rax);
  }
  if (short_source) {
    c.mov(c.rax, low_bytes(p.source_bytes));
    c.kmovq(c.k2, c.rax);
  }
  c.mov(c.rsi, c.ptr[c.rdi + offsetof(GatherArgs, from)]);
  for (std::size_t i = 0; i < p.to.size(); ++i) c.mov(to[i], c.ptr[c.rdi + offsetof(GatherArgs, to) + 8 * i]);
  c.mov(c.rcx, c.ptr[c.rdi + offsetof(GatherArgs, rows)]);
  int next = kFirstControl;
  for (const GatherChunk& chunk : p.chunks) {
    for (const auto& control : chunk.controls) {
      if (next <= kLastControl) c.vmovdqu64(zmm(next++), pool.block(control));
    }
  }
  const auto load = [&](const Xbyak::Zmm& z, std::int64_t from) {
    if (short_source) {
      c.vmovdqu8(z | c.k2 | Xbyak::util::T_z, c.ptr[c.rsi + from]);
    } else {
      c.vmovdqu64(z, c.ptr[c.rsi + from]);
    }
  };
  Xbyak::Label loop;
  c.L(loop);
  next = kFirstControl;
  for (const GatherChunk& chunk : p.chunks) {
    for (std::size_t k = 0; k < chunk.controls.size(); ++k) {
      int control = next++;
      if (control > kLastControl) c.vmovdqu64(zmm(control = 2), pool.block(chunk.controls[k]));
      if (k == 0) {
        load(zmm(0), chunk.windows[0]);
        if (chunk.windows.size() == 1) {
          c.vpermb(zmm(0), zmm(control), zmm(0));
        } else {
          c.vpermt2b(zmm(0), zmm(control), c.ptr[c.rsi + chunk.windows[1]]);
        }
      } else {
        c.mov(c.rax, chunk.merged[k - 1]);
        c.kmovq(c.k3, c.rax);
        c.vpermb(zmm(0) | c.k3, zmm(control), c.ptr[c.rsi + chunk.windows[k + 1]]);
      }
    }
    for (std::size_t i = 0; i < p.to.size(); ++i) {
      if (short_row) {
        c.vmovdqu8(c.ptr[to[i] + chunk.to] | c.k1, zmm(0));
      } else {
        c.vmovdqu64(c.ptr[to[i] + chunk.to], zmm(0));
      }
    }
  }
  const auto advance = [&](const Xbyak::Reg64& r, std::int64_t step) {
    if (step >= INT32_MIN && step <= INT32_MAX) {
      c.add(r, static_cast<std::uint32_t>(static_cast<std::int32_t>(step)));
    } else {
      c.mov(c.rax, step);
      c.add(r, c.rax);
    }
  };
  if (!p.dims.empty()) {
    advance(c.rsi, p.from.back());
    for (std::size_t i = 0; i < p.to.size(); ++i) advance(to[i], p.to[i].back());
  }
  c.dec(c.rcx);
  c.jnz(loop, Xbyak::CodeGenerator::T_NEAR);
  c.vzeroupper();
  c.ret();
  return at;
}

}  // namespace octavo::cpu::jit
