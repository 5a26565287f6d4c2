// Generated machine code that several kernels have in common: equal layers of a network, and one layer for several shapes, differ in what code is called with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "base/fork.h"

namespace octavo::cpu {

/// Code by everything that it was generated from (its key), as long as a kernel has it. Any thread may ask.
class CodeShelf {
 public:
  /// The code of a key that is equal, or make(). `hash`: equal for equal keys. Two threads that ask for the same new code at once may both make it; one of the two
  /// is kept. What `make` throws is thrown.
  template <class Key, class Make>
  [[nodiscard]] auto get(const Key& key, std::uint64_t hash, const Make& make) -> decltype(make()) {
    using Made = typename decltype(make())::element_type;
    if (auto known = find<Key, Made>(key, hash)) return known;
    auto made = make();
    auto kept = std::make_shared<const Key>(key);
    const std::lock_guard lock(fork_safe_mutex());
    if (auto known = find_locked<Key, Made>(key, hash)) return known;
    if (entries_.size() >= 2 * live_ + 16) {
      std::erase_if(entries_, [](const auto& e) { return e.second.code.expired(); });
      live_ = entries_.size();
    }
    entries_.emplace(hash, Entry{std::type_index(typeid(Key)), std::move(kept), made});
    ++made_;
    return made;
  }
  /// Codes that were made for it so far.
  [[nodiscard]] std::size_t made() const {
    const std::lock_guard lock(fork_safe_mutex());
    return made_;
  }

 private:
  struct Entry {
    std::type_index type;
    std::shared_ptr<const void> key;
    std::weak_ptr<const void> code;
  };
  template <class Key, class Made>
  [[nodiscard]] std::shared_ptr<Made> find(const Key& key, std::uint64_t hash) const {
    const std::lock_guard lock(fork_safe_mutex());
    return find_locked<Key, Made>(key, hash);
  }
  template <class Key, class Made>
  [[nodiscard]] std::shared_ptr<Made> find_locked(const Key& key, std::uint64_t hash) const {
    const auto [first, last] = entries_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
      if (at->second.type != std::type_index(typeid(Key)) || !(*static_cast<const Key*>(at->second.key.get()) == key)) continue;
      if (auto code = at->second.code.lock()) return std::static_pointer_cast<Made>(std::const_pointer_cast<void>(std::move(code)));
    }
    return nullptr;
  }

  // Under fork_safe_mutex():
  std::unordered_multimap<std::uint64_t, Entry> entries_;
  std::size_t live_ = 0, made_ = 0;
};

/// Kernels that this thread loads in the scope share their code by the shelf, which outlives it. Scopes nest; the innermost one counts. Without one, each
/// kernel generates its own.
class ShelfScope {
 public:
  explicit ShelfScope(CodeShelf& shelf) : outer_(std::exchange(here(), &shelf)) {}
  ~ShelfScope() { here() = outer_; }
  ShelfScope(const ShelfScope&) = delete;
  ShelfScope& operator=(const ShelfScope&) = delete;

  /// Null: there is none.
  [[nodiscard]] static CodeShelf* shelf() { return here(); }

 private:
  static CodeShelf*& here() {
    static thread_local CodeShelf* shelf = nullptr;
    return shelf;
  }
  CodeShelf* outer_;
};

}  // namespace octavo::cpu
