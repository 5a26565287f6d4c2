// Threads, barriers, signals and copies of one block: over 400 lines, since each of them decides when the others go on.
#include "cuda/emulation/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "cuda/emulation/fiber.h"

namespace octavo::testing {
namespace {

constexpr std::size_t kWarp = 32;
constexpr std::size_t kMaxParameters = 64;  // an element-wise region of a random network has 29
using Parameters = std::array<void*, kMaxParameters>;

template <std::size_t>
using Pointer = void*;
/// All of them are passed: more than the kernel takes do no harm, as the caller cleans up.
template <std::size_t... k>
void call(void (*kernel)(), const Parameters& p, std::index_sequence<k...>) {
  reinterpret_cast<void (*)(Pointer<k>...)>(kernel)(p[k]...);
}

struct Copy {
  std::byte* to;
  const std::byte* from;
  int bytes, source_bytes;
  Range* range;
};

struct Thread {
  enum class State { ready, barrier, collective, signal, done };
  State state = State::ready;
  OctavoThread ids{};
  int barrier = 0, barrier_threads = 0, line = 0;
  unsigned mask = 0;
  void* mine = nullptr;          ///< for the collective
  const void* signal = nullptr;  ///< waited for
  int parity = 0;
  std::vector<Copy> open;                 ///< cp.asyncs since the last commit
  std::vector<std::vector<Copy>> groups;  ///< committed, oldest first
};

struct Signal {
  int arrivals = 0, left = 0, phase = 0;
  long bytes = 0;  ///< announced, not yet there
};

/// Copies that arrive at a signal by themselves: cp.asyncs of a thread, or one bulk copy.
struct Arrival {
  std::size_t thread;
  std::vector<Copy> copies;
  void* signal;
  bool bulk;
};

class Runner {
 public:
  Runner(const HostKernel& kernel, const Grid& grid, const std::vector<void*>& parameters, GlobalMemory& memory)
      : kernel_(kernel),
        grid_(grid),
        memory_(memory),
        count_(static_cast<std::size_t>(grid.threads[0]) * static_cast<std::size_t>(grid.threads[1]) *
               static_cast<std::size_t>(grid.threads[2])),
        threads_(count_),
        fibers_(count_),
        dynamic_memory_(grid.dynamic_shared + 256) {
    std::copy(parameters.begin(), parameters.end(), parameters_.begin());
    auto* dynamic = dynamic_memory_.data();
    dynamic += (128 - reinterpret_cast<std::uintptr_t>(dynamic) % 128) % 128;
    dynamic_ = std::make_unique<Range>("the dynamic shared memory", dynamic, grid.dynamic_shared, true, true);
    static_ = std::make_unique<Range>("the static shared memory", kernel.static_shared_begin,
                                      static_cast<std::size_t>(kernel.static_shared_end - kernel.static_shared_begin), true, true);
    hooks_.dynamic_shared = dynamic;
    hooks_.access = [](const void* p, unsigned n, int write, int aligned) { running->access(p, n, write != 0, aligned != 0); };
    hooks_.atomic = [](const void* p, unsigned n) { running->atomic(p, n); };
    hooks_.barrier = [](int id, int n, int line) { running->barrier(id, n, line); };
    hooks_.arrive = [](int id, int n) { running->arrive(id, n); };
    hooks_.collective = [](unsigned mask, int line, void* mine, void (*f)(void**)) { running->collective(mask, line, mine, f); };
    hooks_.warp_barrier = [] { ++running->mine().warp_interval; };
    hooks_.copy_async = [](void* to, const void* from, int n, int m) { running->copy_async(to, from, n, m); };
    hooks_.commit = [] { running->commit(); };
    hooks_.wait = [](int n) { running->wait(n); };
    hooks_.signal_begin = [](void* s, int n) { running->signal_begin(s, n); };
    hooks_.signal_arrive = [](void* s) { running->arrive_at(s, 1, 0); };
    hooks_.signal_copies = [](void* s) { running->signal_copies(s); };
    hooks_.signal_wait = [](void* s, int parity, int line) { running->signal_wait(s, parity, line); };
    hooks_.copy_bulk = [](void* to, const void* from, int n, void* s) { running->copy_bulk(to, from, n, s); };
    hooks_.copy_image = [](void* to, const OctavoImage* image, const int* from, int right, int down, int size, void* s) {
      running->copy_image(static_cast<std::byte*>(to), *image, from, right, down, size, s);
    };
    hooks_.trap = [](const char* text) { running->stop(text); };
  }

  static void checked(const void* p, unsigned n, bool write, bool aligned) {
    if (!running->fibers_.on_stack(p)) running->access(p, n, write, aligned);
  }

  std::string run(unsigned seed) {
    running = this;
    *kernel_.hooks = &hooks_;
    const auto blocks = static_cast<std::size_t>(grid_.blocks[0]) * static_cast<std::size_t>(grid_.blocks[1]) *
                        static_cast<std::size_t>(grid_.blocks[2]);
    released_.assign(blocks, -1);
    for (Range& r : memory_.ranges()) r.forget();
    std::vector<std::size_t> order(blocks);
    std::iota(order.begin(), order.end(), std::size_t{0});
    late_.seed(seed);
    if (seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    for (const std::size_t b : order) {
      run_block(b);
      if (!error_.empty()) break;
    }
    *kernel_.hooks = nullptr;
    running = nullptr;
    return error_;
  }

 private:
  struct Now {
    int warp_interval = 0;
  };

  void run_block(std::size_t block) {
    block_ = static_cast<int>(block);
    interval_ = 0;
    warp_intervals_.assign(count_, Now{});
    arrived_.fill(0);
    waiting_.fill(0);
    at_signals_ = 0;
    signals_.clear();
    arrivals_.clear();
    for (Range* r : {dynamic_.get(), static_.get()}) {
      r->forget();
      if (r->bytes() > 0) std::memset(r->data(), 0xCD, r->bytes());
    }
    const auto x = static_cast<std::size_t>(grid_.blocks[0]), y = static_cast<std::size_t>(grid_.blocks[1]);
    const auto tx = static_cast<std::size_t>(grid_.threads[0]), ty = static_cast<std::size_t>(grid_.threads[1]);
    const auto index = [](std::size_t a, std::size_t b, std::size_t c) {
      return OctavoIndex3{static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c)};
    };
    for (std::size_t t = 0; t < count_; ++t) {
      threads_[t] = Thread{};
      threads_[t].ids = {index(t % tx, t / tx % ty, t / tx / ty), index(block % x, block / x % y, block / x / y),
                         index(tx, ty, static_cast<std::size_t>(grid_.threads[2])),
                         index(x, y, static_cast<std::size_t>(grid_.blocks[2]))};
      fibers_.start(t, [](std::size_t i) { running->thread_main(i); });
    }
    while (error_.empty()) {
      bool moved = false, left = false;
      for (std::size_t t = 0; t < count_ && error_.empty(); ++t) {
        left = left || threads_[t].state != Thread::State::done;
        if (threads_[t].state != Thread::State::ready) continue;
        current_ = t;
        hooks_.thread = &threads_[t].ids;
        fibers_.resume(t);
        moved = true;
      }
      if (!left) {
        if (error_.empty() && !arrivals_.empty())
          error_ = fmt::format("block {} ends while copies into its memory are under way", block_);
        return;
      }
      if (error_.empty() && !open_barriers() && !open_signals() && !moved && !arrive_late()) diagnose();
    }
  }

  void thread_main(std::size_t t) {
    call(kernel_.entry, parameters_, std::make_index_sequence<kMaxParameters>());
    threads_[t].state = Thread::State::done;
    fibers_.leave();
  }

  Moment now() { return {block_, static_cast<int>(current_), interval_, warp_intervals_[current_ / kWarp].warp_interval}; }
  Now& mine() { return warp_intervals_[current_ / kWarp]; }

  /// The thread will not go on.
  void stop(std::string text) {
    if (error_.empty()) error_ = std::move(text);
    fibers_.leave();
  }

  Range* find(const void* p) {
    for (Range* r : {dynamic_.get(), static_.get()}) {
      if (r->holds(p, 1)) return r;
    }
    return memory_.reserves(p) ? memory_.find(p) : nullptr;
  }

  Range* range_of(const void* p, unsigned n, const char* doing) {
    Range* r = find(p);
    if (r != nullptr && r->holds(p, n)) return r;
    const auto* at = static_cast<const std::byte*>(p);
    const auto who = fmt::format("block {} thread {} {} {} bytes", block_, current_, doing, n);
    if (r != nullptr) {
      stop(fmt::format("{} at byte {} of {}, which has {}", who, at - r->data(), r->name(), r->bytes()));
    } else {
      stop(fmt::format("{} at an address of no buffer ({} bytes behind the dynamic shared memory's beginning)", who,
                       at - dynamic_->data()));
    }
    return nullptr;
  }

  void access(const void* p, unsigned n, bool write, bool aligned) {
    const auto* at = static_cast<const std::byte*>(p);
    if (fibers_.on_stack(p)) return;
    if (last_ != nullptr && last_->holds(p, n)) return access_in(*last_, at, n, write, aligned);
    const bool is_static = at >= kernel_.static_shared_begin && at < kernel_.static_shared_end;
    if (!is_static && at >= kernel_.image_begin && at < kernel_.image_end) {  // tables; code writes to none
      if (write) stop(fmt::format("block {} thread {} writes {} bytes behind a static shared array", block_, current_, n));
      return;
    }
    if (at >= reinterpret_cast<std::byte*>(&hooks_) && at < reinterpret_cast<std::byte*>(&hooks_ + 1)) return;
    const auto* first = reinterpret_cast<const std::byte*>(threads_.data());
    if (at >= first && at < first + threads_.size() * sizeof(Thread)) return;  // threadIdx and its like
    Range* r = range_of(p, n, write ? "writes" : "reads");
    if (r == nullptr) return;
    last_ = r;
    access_in(*r, at, n, write, aligned);
  }

  void access_in(Range& r, const std::byte* at, unsigned n, bool write, bool aligned) {
    const auto offset = static_cast<std::size_t>(at - r.data());
    if (aligned && reinterpret_cast<std::uintptr_t>(at) % n != 0)
      return stop(fmt::format("block {} thread {} {} {} bytes at byte {} of {}, which is not aligned", block_, current_,
                              write ? "writes" : "reads", n, offset, r.name()));
    std::string wrong = write ? r.write(offset, n, now(), released_) : r.read(offset, n, now(), released_);
    if (!wrong.empty()) stop(std::move(wrong));
  }

  void atomic(const void* p, unsigned n) {
    Range* r = range_of(p, n, "changes");
    if (r == nullptr) return;
    std::string wrong = r->atomic(static_cast<std::size_t>(static_cast<const std::byte*>(p) - r->data()), n, now());
    released_[static_cast<std::size_t>(block_)] = interval_;
    if (!wrong.empty()) stop(std::move(wrong));
  }

  void barrier(int id, int threads, int line) {
    Thread& t = threads_[current_];
    t.state = Thread::State::barrier;
    t.barrier = id;
    t.barrier_threads = threads == 0 ? static_cast<int>(count_) : threads;
    t.line = line;
    ++waiting_.at(static_cast<std::size_t>(id));
    fibers_.leave();
  }

  void arrive(int id, int threads) {
    int& arrived = arrived_.at(static_cast<std::size_t>(id));
    if (++arrived >= threads)
      stop(fmt::format("block {} thread {}: all threads of barrier {} arrive and none waits", block_, current_, id));
  }

  /// Opens the barriers that all of their threads have come to. Named barriers order their own threads, which the checks treat as
  /// an order of all: only barrier 0 is known to be of the whole block.
  bool open_barriers() {
    bool opened = false;
    for (int id = 0; id < 16; ++id) {
      if (waiting_.at(static_cast<std::size_t>(id)) == 0) continue;
      std::vector<Thread*> waiting;
      for (Thread& t : threads_) {
        if (t.state == Thread::State::barrier && t.barrier == id) waiting.push_back(&t);
      }
      int& arrived = arrived_.at(static_cast<std::size_t>(id));
      if (waiting.empty() || static_cast<int>(waiting.size()) + arrived < waiting[0]->barrier_threads) continue;
      if (static_cast<int>(waiting.size()) + arrived > waiting[0]->barrier_threads) {
        error_ = fmt::format("block {}: more threads than the {} of barrier {}", block_, waiting[0]->barrier_threads, id);
        return true;
      }
      arrived = 0;
      waiting_.at(static_cast<std::size_t>(id)) = 0;
      for (const Thread* t : waiting) {
        if (t->line == waiting[0]->line) continue;
        error_ = fmt::format("block {}: threads wait at different barriers of the text, at lines {} and {}", block_,
                             waiting[0]->line, t->line);
        return true;
      }
      for (Thread* t : waiting) t->state = Thread::State::ready;
      ++interval_;
      opened = true;
    }
    return opened;
  }

  void collective(unsigned mask, int line, void* mine, void (*together)(void**)) {
    Thread& t = threads_[current_];
    t.state = Thread::State::collective;
    t.line = line;
    t.mask = mask;
    t.mine = mine;
    const std::size_t first = current_ / kWarp * kWarp;
    void* lanes[kWarp] = {};
    bool all = (mask >> (current_ - first) & 1U) != 0;
    for (std::size_t l = 0; l < kWarp && first + l < count_; ++l) {
      const Thread& other = threads_[first + l];
      if ((mask >> l & 1U) == 0) continue;
      all = all && other.state == Thread::State::collective && other.line == line && other.mask == mask;
      lanes[l] = other.mine;
    }
    if (!all) return fibers_.leave();
    together(lanes);
    for (std::size_t l = 0; l < kWarp && first + l < count_; ++l) {
      if ((mask >> l & 1U) != 0) threads_[first + l].state = Thread::State::ready;
    }
  }

  void copy_async(void* to, const void* from, int bytes, int source_bytes) {
    const auto n = static_cast<unsigned>(bytes);
    if (source_bytes > 0) access(from, static_cast<unsigned>(source_bytes), false, false);
    if (reinterpret_cast<std::uintptr_t>(from) % n != 0 || reinterpret_cast<std::uintptr_t>(to) % n != 0)
      return stop(
          fmt::format("block {} thread {}: a cp.async of {} bytes between addresses that are not aligned", block_, current_, n));
    access(to, n, true, false);
    Range* r = range_of(to, n, "copies");
    if (r == nullptr) return;
    if (!r->shared()) return stop(fmt::format("block {} thread {}: a cp.async to {}", block_, current_, r->name()));
    r->copying(static_cast<std::size_t>(static_cast<std::byte*>(to) - r->data()), n);
    threads_[current_].open.push_back({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, source_bytes, r});
  }

  void commit() {
    Thread& t = threads_[current_];
    t.groups.push_back(std::move(t.open));
    t.open.clear();
  }

  void wait(int groups) {
    Thread& t = threads_[current_];
    while (static_cast<int>(t.groups.size()) > groups) {
      for (const Copy& c : t.groups.front()) {
        std::memcpy(c.to, c.from, static_cast<std::size_t>(c.source_bytes));
        std::memset(c.to + c.source_bytes, 0, static_cast<std::size_t>(c.bytes - c.source_bytes));
        c.range->copied(static_cast<std::size_t>(c.to - c.range->data()), static_cast<std::size_t>(c.bytes), now());
      }
      t.groups.erase(t.groups.begin());
    }
  }

  void signal_begin(void* signal, int arrivals) {
    const auto* at = static_cast<const std::byte*>(signal);
    if (reinterpret_cast<std::uintptr_t>(signal) % 8 != 0 || !dynamic_->holds(at, 8))
      return stop(fmt::format("block {} thread {}: a signal that is no eight bytes of shared memory", block_, current_));
    signals_[signal] = {arrivals, arrivals, 0, 0};
  }

  Signal* signal_at(const void* signal) {
    const auto at = signals_.find(signal);
    if (at != signals_.end()) return &at->second;
    stop(fmt::format("block {} thread {}: a signal that did not begin", block_, current_));
    return nullptr;
  }

  /// Counts arrivals, and bytes that were announced (negative: that have come). A phase that ends orders what was before it.
  void arrive_at(void* signal, int arrivals, long bytes) {
    Signal* s = signal_at(signal);
    if (s == nullptr) return;
    if (s->left < arrivals) return stop(fmt::format("block {} thread {}: more than {} arrive", block_, current_, s->arrivals));
    s->left -= arrivals;
    s->bytes += bytes;
    if (s->left > 0 || s->bytes != 0) return;
    s->left = s->arrivals;
    ++s->phase;
    ++interval_;
  }

  void signal_wait(void* signal, int parity, int line) {
    if (signal_at(signal) == nullptr) return;
    Thread& t = threads_[current_];
    t.state = Thread::State::signal;
    t.signal = signal, t.parity = parity, t.line = line;
    ++at_signals_;
    fibers_.leave();
  }

  bool open_signals() {
    if (at_signals_ == 0) return false;
    bool opened = false;
    for (Thread& t : threads_) {
      if (t.state != Thread::State::signal || signals_[t.signal].phase % 2 == t.parity) continue;
      t.state = Thread::State::ready;
      --at_signals_;
      opened = true;
    }
    return opened;
  }

  void signal_copies(void* signal) {
    if (signal_at(signal) == nullptr) return;
    Thread& t = threads_[current_];
    Arrival a{current_, std::move(t.open), signal, false};
    t.open.clear();
    for (auto& group : t.groups) a.copies.insert(a.copies.end(), group.begin(), group.end());
    t.groups.clear();
    arrivals_.push_back(std::move(a));
  }

  void copy_bulk(void* to, const void* from, int bytes, void* signal) {
    const auto n = static_cast<unsigned>(bytes);
    for (const void* p : {static_cast<const void*>(to), from}) {
      if (bytes <= 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(p) % 16 != 0)
        return stop(fmt::format("block {} thread {}: a bulk copy that is no multiple of 16 bytes", block_, current_));
    }
    access(from, n, false, false);
    access(to, n, true, false);
    Range* r = range_of(to, n, "copies");
    if (r == nullptr) return;
    if (!r->shared()) return stop(fmt::format("block {} thread {}: a bulk copy to {}", block_, current_, r->name()));
    r->copying(static_cast<std::size_t>(static_cast<std::byte*>(to) - r->data()), n);
    arrive_at(signal, 1, bytes);
    arrivals_.push_back(
        {current_, {{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, bytes, r}}, signal, true});
  }

  /// Positions of the image's window from from[1..3] on, as PTX has it: behind a row's last one comes the next row's first, behind an image's the next image's.
  void copy_image(std::byte* to, const OctavoImage& image, const int* from, int right, int down, int size, void* signal) {
    const auto place = [&](const std::string& what) { return fmt::format("block {} thread {}: {}", block_, current_, what); };
    if (size != image.pixels * image.bytes)
      return stop(place(fmt::format("{} bytes announced of {} x {}", size, image.pixels, image.bytes)));
    access(to, static_cast<unsigned>(size), true, false);
    Range* r = range_of(to, static_cast<unsigned>(size), "copies");
    if (r == nullptr) return;
    if (!r->shared()) return stop(place("a copy of an image to " + r->name()));
    if ((to - r->data()) % (8L * image.bytes) != 0 || right < 0 || right > 255 || down < 0 || down > 255)
      return stop(place("a copy of an image to rows that begin elsewhere, or too far from its positions"));
    r->copying(static_cast<std::size_t>(to - r->data()), static_cast<std::size_t>(size));
    arrive_at(signal, 1, size);
    Arrival a{current_, {}, signal, true};
    long at[3] = {from[1], from[2], from[3]};
    const int chunks = image.bytes / 16;
    for (int p = 0; p < image.pixels; ++p) {
      const long x = at[0] + right, y = at[1] + down;
      const bool inside = x >= 0 && x < image.dims[0] && y >= 0 && y < image.dims[1] && at[2] >= 0 && at[2] < image.dims[2];
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const long channel = from[0] + 16L * chunk, left = inside ? std::clamp(image.channels - channel, 0L, 16L) : 0;
        const auto* source = reinterpret_cast<const std::byte*>(image.base) +
                             (left > 0 ? at[2] * image.strides[2] + y * image.strides[1] + x * image.strides[0] + channel : 0);
        if (left > 0) access(source, static_cast<unsigned>(left), false, false);
        const int turn = chunks == 8 ? p & 7 : chunks == 4 ? (p >> 1) & 3 : (p >> 2) & 1;
        a.copies.push_back({to + p * image.bytes + 16 * (chunk ^ turn), source, 16, static_cast<int>(left), r});
      }
      if ((at[0] += image.steps[0]) < image.dims[0] + image.upper[0]) continue;
      at[0] = image.lower[0];
      if ((at[1] += image.steps[1]) < image.dims[1] + image.upper[1]) continue;
      at[1] = image.lower[1], ++at[2];
    }
    arrivals_.push_back(std::move(a));
  }

  /// Some copies that are under way are complete.
  bool arrive_late() {
    if (arrivals_.empty()) return false;
    // Copies of different threads and signals have no order.
    const auto at = arrivals_.begin() + static_cast<std::ptrdiff_t>(late_() % arrivals_.size());
    const Arrival a = std::move(*at);
    arrivals_.erase(at);
    const Moment then{block_, static_cast<int>(a.thread), interval_, warp_intervals_[a.thread / kWarp].warp_interval};
    long bytes = 0;
    for (const Copy& c : a.copies) {
      std::memcpy(c.to, c.from, static_cast<std::size_t>(c.source_bytes));
      std::memset(c.to + c.source_bytes, 0, static_cast<std::size_t>(c.bytes - c.source_bytes));
      c.range->copied(static_cast<std::size_t>(c.to - c.range->data()), static_cast<std::size_t>(c.bytes), then);
      bytes += c.bytes;
    }
    arrive_at(a.signal, a.bulk ? 0 : 1, a.bulk ? -bytes : 0);
    return true;
  }

  /// Nothing can go on: says who waits where.
  void diagnose() {
    std::string text;
    std::size_t done = 0;
    for (const Thread& t : threads_) done += t.state == Thread::State::done;
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < count_; ++i) {
      const Thread& t = threads_[i];
      if (t.state == Thread::State::done) continue;
      std::string where = fmt::format("at a {} in line {}",
                                      t.state == Thread::State::barrier  ? "barrier"
                                      : t.state == Thread::State::signal ? "signal"
                                                                         : "warp's operation",
                                      t.line);
      if (std::find(seen.begin(), seen.end(), where) != seen.end()) continue;
      text += fmt::format("{}thread {} waits {}", text.empty() ? "" : ", ", i, where);
      seen.push_back(std::move(where));
    }
    error_ = fmt::format("block {} cannot go on: {}; {} of {} threads have ended", block_, text, done, count_);
  }

  static Runner* running;
  const HostKernel& kernel_;
  const Grid& grid_;
  GlobalMemory& memory_;
  std::size_t count_;
  std::vector<Thread> threads_;
  Fibers fibers_;
  std::vector<std::byte> dynamic_memory_;
  Parameters parameters_{};
  std::unique_ptr<Range> dynamic_, static_;
  OctavoHooks hooks_{};
  std::vector<int> released_;
  std::map<const void*, Signal> signals_;
  std::deque<Arrival> arrivals_;     ///< of copies under way
  std::mt19937 late_;                ///< which of them arrives
  std::array<int, 16> arrived_{};    ///< at each barrier, without waiting
  std::array<int, 16> waiting_{};    ///< threads at each barrier
  int at_signals_ = 0;               ///< threads that wait for one
  Range* last_ = nullptr;            ///< of the last access that was found: most go on where it was
  std::vector<Now> warp_intervals_;  ///< a warp each
  int block_ = 0, interval_ = 0;
  std::size_t current_ = 0;
  std::string error_;
};

Runner* Runner::running = nullptr;

}  // namespace

#if !defined(__SANITIZE_THREAD__)
// What the compiler calls before each access of memory in kernels (device.h). Programs export these (CMakeLists.txt).
static void checked(const void* p, unsigned n, bool write, bool aligned) {
  Runner::checked(p, n, write, aligned);
}
#define OCTAVO_EXPORTED extern "C" __attribute__((visibility("default"), used)) void
#define OCTAVO_ACCESS(n)                               \
  OCTAVO_EXPORTED __tsan_read##n(void* p) {            \
    checked(p, n, false, true);                        \
  }                                                    \
  OCTAVO_EXPORTED __tsan_write##n(void* p) {           \
    checked(p, n, true, true);                         \
  }                                                    \
  OCTAVO_EXPORTED __tsan_unaligned_read##n(void* p) {  \
    checked(p, n, false, false);                       \
  }                                                    \
  OCTAVO_EXPORTED __tsan_unaligned_write##n(void* p) { \
    checked(p, n, true, false);                        \
  }                                                    \
  OCTAVO_EXPORTED __tsan_volatile_read##n(void* p) {   \
    checked(p, n, false, true);                        \
  }                                                    \
  OCTAVO_EXPORTED __tsan_volatile_write##n(void* p) {  \
    checked(p, n, true, true);                         \
  }
OCTAVO_ACCESS(1)
OCTAVO_ACCESS(2)
OCTAVO_ACCESS(4)
OCTAVO_ACCESS(8)
OCTAVO_ACCESS(16)
OCTAVO_EXPORTED __tsan_read_range(void* p, unsigned long n) {
  checked(p, static_cast<unsigned>(n), false, false);
}
OCTAVO_EXPORTED __tsan_write_range(void* p, unsigned long n) {
  checked(p, static_cast<unsigned>(n), true, false);
}
OCTAVO_EXPORTED __tsan_func_entry(void*) {}
OCTAVO_EXPORTED __tsan_func_exit() {}
OCTAVO_EXPORTED __tsan_init() {}
#undef OCTAVO_ACCESS
#undef OCTAVO_EXPORTED
#endif

std::string run_grid(const HostKernel& kernel, const Grid& grid, const std::vector<void*>& parameters, GlobalMemory& memory,
                     unsigned seed) {
  if (parameters.size() > kMaxParameters) return fmt::format("{} parameters, at most {}", parameters.size(), kMaxParameters);
  for (int k = 0; k < 3; ++k) {
    if (grid.blocks[static_cast<std::size_t>(k)] < 1 || grid.threads[static_cast<std::size_t>(k)] < 1) return "an empty grid";
  }
  return Runner(kernel, grid, parameters, memory).run(seed);
}

}  // namespace octavo::testing
