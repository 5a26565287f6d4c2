#include "cpu/jit/recorded.h"

namespace octavo::cpu::jit {
namespace {

thread_local RecordCode* innermost = nullptr;

}  // namespace

RecordCode::RecordCode() : outer_(innermost) {
  innermost = this;
}
RecordCode::~RecordCode() {
  innermost = outer_;
}
void RecordCode::finished(const std::byte* code, std::size_t bytes) {
  if (innermost != nullptr) innermost->bytes_.append(reinterpret_cast<const char*>(code), bytes);
}

}  // namespace octavo::cpu::jit
