// Something that a run has until it ends, and that goes back to where it was taken from.
#pragma once

#include <utility>

namespace octavo::engine {

/// `Pool::give` takes the thing back.
template <class Pool, class Thing>
class Lease {
 public:
  Lease() = default;
  Lease(Pool* from, Thing thing) : from_(from), thing_(std::move(thing)) {}
  Lease(Lease&& other) noexcept : from_(std::exchange(other.from_, nullptr)), thing_(std::move(other.thing_)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(from_, other.from_), std::swap(thing_, other.thing_);
    return *this;
  }
  ~Lease() {
    if (from_ != nullptr) from_->give(std::move(thing_));
  }
  /// It is never given back, and ends with this object.
  void keep() { from_ = nullptr; }
  [[nodiscard]] const Thing& operator*() const { return thing_; }
  [[nodiscard]] const Thing* operator->() const { return &thing_; }

 private:
  Pool* from_ = nullptr;
  Thing thing_{};
};

}  // namespace octavo::engine
