#include "cuda/emulation/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace octavo::testing {
namespace {

constexpr std::size_t kPage = 4096, kReserved = std::size_t{1} << 36;  // addresses, not memory
constexpr int kWarp = 32;

bool before(const Moment& writer, const Moment& now, const std::vector<int>& released) {
  const auto of = [&](int b) { return static_cast<std::size_t>(b) < released.size() ? released[static_cast<std::size_t>(b)] : -1; };
  return of(writer.block) >= writer.interval && of(now.block) >= 0;
}

}  // namespace

bool unordered(const Moment& a, const Moment& b) {
  if (a.block != b.block || a.thread == b.thread || a.interval != b.interval) return false;
  return a.thread / kWarp != b.thread / kWarp || a.warp_interval == b.warp_interval;
}

void Range::forget() {
  std::fill(words_.begin(), words_.end(), Byte{});
  std::fill(split_.begin(), split_.end(), static_cast<unsigned char>(0));
}

template <class Visit>
void Range::each(std::size_t at, std::size_t n, Visit visit) {
  const std::size_t end = at + n;
  while (at < end) {
    const std::size_t word = at / kWord, first = word * kWord, next = std::min(end, first + kWord);
    const bool whole = at == first && next == first + kWord;
    if (whole && split_[word] == 0) {
      if (!visit(words_[word], at)) return;
      at = next;
      continue;
    }
    if (apart_.empty()) apart_.resize(words_.size() * kWord);
    Byte* const bytes = &apart_[first];
    if (split_[word] == 0) std::fill_n(bytes, kWord, words_[word]);
    split_[word] = 1;
    for (; at < next; ++at) {
      if (!visit(apart_[at], at)) return;
    }
    if (whole && std::all_of(bytes + 1, bytes + kWord, [&](const Byte& b) { return b == *bytes; })) {
      words_[word] = *bytes;
      split_[word] = 0;
    }
  }
}

std::string Range::place(std::size_t at, const char* doing, const Moment& now) const {
  return fmt::format("block {} thread {} {} byte {} of {}", now.block, now.thread, doing, at, name_);
}

std::string Range::read(std::size_t at, std::size_t n, const Moment& now, const std::vector<int>& released) {
  std::string wrong;
  if (!writable_) return wrong;
  const auto refuse = [&](std::size_t i, const std::string& why) {
    wrong = place(i, "reads", now) + why;
    return false;
  };
  each(at, n, [&](Byte& b, std::size_t i) {
    if (b.state == Byte::State::copying) return refuse(i, ", into which a cp.async is under way: no wait before");
    if (b.state == Byte::State::untouched && shared_) return refuse(i, ", which nothing wrote");
    if (b.state == Byte::State::ready) {
      if (unordered(b.writer, now))
        return refuse(i, fmt::format(", which thread {} wrote with no barrier in between", b.writer.thread));
      if (b.writer.block != now.block && !before(b.writer, now, released))
        return refuse(i, fmt::format(", which block {} writes in the same launch", b.writer.block));
    }
    const bool again = b.reader.block == now.block && b.reader.interval == now.interval;
    const bool same_warp = b.reader.thread / kWarp == now.thread / kWarp;
    b.other_warps = again && (b.other_warps || !same_warp);
    b.other_lanes =
        again && same_warp && b.reader.warp_interval == now.warp_interval && (b.other_lanes || b.reader.thread != now.thread);
    b.reader = now;
    return true;
  });
  return wrong;
}

std::string Range::write(std::size_t at, std::size_t n, const Moment& now, const std::vector<int>& released) {
  if (!writable_) return place(at, "writes", now) + ", which kernels only read";
  std::string wrong;
  const auto refuse = [&](std::size_t i, const std::string& why) {
    wrong = place(i, "writes", now) + why;
    return false;
  };
  each(at, n, [&](Byte& b, std::size_t i) {
    if (b.state == Byte::State::copying) return refuse(i, ", into which a cp.async is under way");
    if (b.state == Byte::State::ready && unordered(b.writer, now))
      return refuse(i, fmt::format(", which thread {} wrote with no barrier in between", b.writer.thread));
    if (b.state == Byte::State::ready && b.writer.block != now.block && !before(b.writer, now, released))
      return refuse(i, fmt::format(", which block {} wrote", b.writer.block));
    const bool again = b.reader.block == now.block && b.reader.interval == now.interval;
    const bool others = b.other_warps || (b.other_lanes && b.reader.warp_interval == now.warp_interval);
    if (b.reader.thread >= 0 && (unordered(b.reader, now) || (again && others)))
      return refuse(i, ", which another thread reads with no barrier in between");
    if (b.reader.thread >= 0 && b.reader.block != now.block && !before(b.reader, now, released))
      return refuse(i, fmt::format(", which block {} read", b.reader.block));
    b.writer = now;
    b.state = Byte::State::ready;
    return true;
  });
  return wrong;
}

std::string Range::atomic(std::size_t at, std::size_t n, const Moment& now) {
  if (!writable_) return place(at, "changes", now) + ", which kernels only read";
  std::string wrong;
  const auto refuse = [&](std::size_t i, const char* doing, const std::string& why) {
    wrong = place(i, doing, now) + why;
    return false;
  };
  each(at, n, [&](Byte& b, std::size_t i) {
    if (b.state == Byte::State::copying) return refuse(i, "changes", ", into which a cp.async is under way");
    if (b.state == Byte::State::untouched && shared_) return refuse(i, "adds to", ", which nothing wrote");
    if (b.state == Byte::State::ready && unordered(b.writer, now))
      return refuse(i, "changes", fmt::format(", which thread {} wrote with no barrier in between", b.writer.thread));
    b.writer = now;
    b.state = Byte::State::atomic;
    return true;
  });
  return wrong;
}

void Range::copying(std::size_t at, std::size_t n) {
  each(at, n, [](Byte& b, std::size_t) {
    b.state = Byte::State::copying;
    return true;
  });
}

void Range::copied(std::size_t at, std::size_t n, const Moment& now) {
  each(at, n, [&](Byte& b, std::size_t) {
    b.state = Byte::State::ready;
    b.writer = now;
    return true;
  });
}

GlobalMemory::GlobalMemory() {
  void* p = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::abort();
  base_ = static_cast<std::byte*>(p);
  used_ = kPage;
}

GlobalMemory::~GlobalMemory() {
  munmap(base_, kReserved);
}

std::byte* GlobalMemory::allocate(std::string name, std::size_t bytes, bool writable) {
  const std::size_t pages = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  std::byte* at = base_ + used_;
  used_ += pages + kPage;
  if (used_ > kReserved || mprotect(at, pages, PROT_READ | PROT_WRITE) != 0) std::abort();
  ranges_.emplace_back(std::move(name), at, bytes, writable, false);
  return at;
}

Range* GlobalMemory::find(const void* p) {
  auto next = std::upper_bound(ranges_.begin(), ranges_.end(), static_cast<const std::byte*>(p),
                               [](const std::byte* a, const Range& r) { return a < r.data(); });
  return next == ranges_.begin() ? nullptr : &*std::prev(next);
}

bool GlobalMemory::reserves(const void* p) const {
  return p >= base_ && p < base_ + kReserved;
}

}  // namespace octavo::testing
