// cpu.non_zero.rows: the positions of elements that are not 0, and how many there are. A piece of the elements becomes bytes of 0 and 1, eight of these a
// mask, and a table says which positions the mask has: eight are stored at a time, and as many kept as there are bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "cpu/family.h"
#include "cpu/table.h"
#include "region/store_results.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;  ///< elements, a multiple of kEight
constexpr std::int64_t kEight = 8;

struct NonZeroSetting {
  region::TensorRef x = {};
  std::optional<region::TensorRef> many = {};  ///< how many of the first elements there are; nothing: all
  std::vector<region::TensorRef> stores = {};
  std::vector<std::size_t> results = {};  ///< by store: 0 positions, 1 how many
};

Result<NonZeroSetting> non_zero_setting(const Stage& s) {
  const region::TensorRef& x = s.anchor.inputs[0];
  if (x.dims.size() != 1) return fail(ErrorKind::bad_engine, fmt::format("non_zero of {}", ir::to_string(x.dims)));
  if (x.quantizer) return refuse("the input", "codes", "values");
  if (x.dims[0] > 1 && x.strides[0] != 1) return refuse("distance of elements", x.strides[0], "1");
  NonZeroSetting t{x, {}, s.stores, {}};
  if (s.anchor.inputs.size() > 1) {
    t.many = s.anchor.inputs[1];
    if (t.many->dtype != ir::DType::s64 || !t.many->dims.empty())
      return fail(ErrorKind::bad_engine, "non_zero: the operand that says how many elements there are is not s64[]");
  }
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    const region::TensorRef& r = s.stores[i];
    const std::size_t of = region::result_of_store(s.anchor, i);
    if (of > 1 || r.dtype != ir::DType::s64 || r.dims != (of == 0 ? x.dims : ir::Shape{}))
      return fail(ErrorKind::bad_engine,
                  fmt::format("non_zero: result {} is {} {}", of, ir::name_of(r.dtype), ir::to_string(r.dims)));
    t.results.push_back(of);
  }
  return t;
}

/// By mask: the positions of its bits in the low places.
constexpr auto positions_of_bits() {
  std::array<std::array<std::uint8_t, kEight>, 256> out{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    std::size_t n = 0;
    for (unsigned bit = 0; bit < kEight; ++bit) {
      if ((mask >> bit & 1U) != 0) out[mask][n++] = static_cast<std::uint8_t>(bit);
    }
  }
  return out;
}
constexpr auto kPositions = positions_of_bits();

template <class T>
void flags_of(std::uint8_t* to, const std::byte* from, std::int64_t n) {
  const T* x = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < n; ++i) to[i] = x[i] != T(0) ? 1 : 0;
}
/// Floats of 16 bits: -0 is 0.
void flags_of_halves(std::uint8_t* to, const std::byte* from, std::int64_t n) {
  const auto* x = reinterpret_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < n; ++i) to[i] = (x[i] & 0x7fffU) != 0 ? 1 : 0;
}

class NonZeroKernel final : public Kernel {
 public:
  explicit NonZeroKernel(NonZeroSetting setting) : t_(std::move(setting)) {}
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>((t_.x.dims[0] + kEight) * 8); }

  void run(const Memory& memory, int, int, const Worker& worker) const override {
    auto* const found = reinterpret_cast<std::int64_t*>(worker.scratch);
    const std::int64_t room = t_.x.dims[0];
    const std::int64_t extent =
        t_.many ? std::clamp<std::int64_t>(*reinterpret_cast<const std::int64_t*>(memory.at(*t_.many)), 0, room) : room;
    const std::byte* x = memory.at(t_.x);
    std::uint8_t flags[kPiece];
    std::int64_t count = 0;
    for (std::int64_t at = 0; at < extent; at += kPiece) {
      const std::int64_t n = std::min(kPiece, extent - at);
      read(flags, x + at * static_cast<std::int64_t>(ir::size_of(t_.x.dtype)), n);
      std::fill(flags + n, flags + std::min(kPiece, padded_to(n, kEight)), std::uint8_t{0});
      for (std::int64_t i = 0; i < n; i += kEight) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, flags + i, sizeof eight);
        if (eight == 0) continue;
        const auto mask = static_cast<std::size_t>(eight * 0x0102040810204080U >> 56);  // byte i becomes bit i
        for (std::int64_t k = 0; k < kEight; ++k) found[count + k] = at + i + kPositions[mask][static_cast<std::size_t>(k)];
        count += std::popcount(mask);
      }
    }
    for (std::size_t i = 0; i < t_.stores.size(); ++i) {
      const region::TensorRef& r = t_.stores[i];
      auto* const to = reinterpret_cast<std::int64_t*>(memory.at(r));
      if (t_.results[i] == 1) {
        *to = count;
        continue;
      }
      const std::int64_t step = room == 1 ? 1 : r.strides[0];
      for (std::int64_t k = 0; k < count; ++k) to[k * step] = found[k];
      for (std::int64_t k = count; k < room; ++k) to[k * step] = 0;
    }
  }

 private:
  void read(std::uint8_t* to, const std::byte* from, std::int64_t n) const {
    const bool real = ir::is_float(t_.x.dtype);
    switch (ir::size_of(t_.x.dtype)) {
      case 1: return flags_of<std::uint8_t>(to, from, n);
      case 2: return real ? flags_of_halves(to, from, n) : flags_of<std::uint16_t>(to, from, n);
      case 4: return real ? flags_of<float>(to, from, n) : flags_of<std::uint32_t>(to, from, n);
      default: return real ? flags_of<double>(to, from, n) : flags_of<std::uint64_t>(to, from, n);
    }
  }

  NonZeroSetting t_;
};

class NonZeroFamily final : public KernelFamily<NonZeroSetting, NonZeroKernel> {
 public:
  NonZeroFamily() : KernelFamily({.name = "non_zero.rows", .levels = kAnyIsa}) {}
  bool about(const Region& r) const override {
    return is_one(r, ir::Op::non_zero) && only(r).anchor.inputs.size() <= 2 && only(r).program.outputs.empty();
  }
  Match<NonZeroSetting> match(const Request& q) const override { return non_zero_setting(only(q.region)); }
  double cost(const NonZeroSetting& t, Isa) const override {
    return static_cast<double>(t.x.dims[0]) * 1.5 * kSecondsPerCycle + 0.1e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(non_zero, NonZeroFamily)

}  // namespace octavo::cpu
